//! A tar's headers: old, ustar, GNU (long names, sparse files) and PAX. The `tar` crate reads a header's fields; its
//! archives read names of any length into memory, and its PAX records end at a line feed, which a capability may
//! have in its value. Pure but for the reader that it is given.

use std::collections::BTreeMap;
use std::io::{self, Read};

use tar::{EntryType, GnuExtSparseHeader, Header};

const BLOCK: usize = 512;
/// The longest name or link target; the kernel's bound is 4096.
const MAX_NAME: u64 = 16 << 10;
/// The largest set of PAX records of an entry: names, and extended attributes of up to 64 KiB each.
const MAX_RECORDS: u64 = 1 << 20;
/// The most pieces of a sparse file.
const MAX_PIECES: usize = 1 << 16;

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file with content.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Another name of a file of the archive.
    Link,
    /// A character device.
    Character,
    /// A block device.
    Block,
    /// A named pipe.
    Fifo,
}

/// The facts of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name as it is written.
    pub name: Vec<u8>,
    /// Its kind.
    pub kind: Kind,
    /// The target of a link.
    pub target: Vec<u8>,
    /// Permissions, with set-id bits and the sticky bit.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Seconds and nanoseconds since 1970.
    pub mtime: (i64, u32),
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// The size of the file, holes included.
    pub size: u64,
    /// Extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The pieces of a sparse file that the archive has, as offset and length.
    pub pieces: Option<Vec<(u64, u64)>>,
}

fn bad(fault: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the tar is damaged: {fault}"))
}

/// A reader of a tar's entries.
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    /// Bytes of the current entry that were not read yet.
    left: u64,
    /// Bytes after those, up to the next block.
    padding: u64,
    /// PAX records for all entries that follow.
    global: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The records before an entry that are about it.
#[derive(Default)]
struct Before {
    name: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    records: Vec<(Vec<u8>, Vec<u8>)>,
}

impl<R: Read> Reader<R> {
    /// Reads a tar.
    pub fn new(source: R) -> Self {
        Self { source, left: 0, padding: 0, global: BTreeMap::new() }
    }

    /// The next entry; `None` at the archive's end. The rest of the current entry is skipped.
    pub fn next_entry(&mut self) -> io::Result<Option<Entry>> {
        let mut before = Before::default();
        let mut any = false;
        loop {
            let Some(header) = self.header()? else {
                return if any { Err(bad("it ends within an entry")) } else { Ok(None) };
            };
            let size = stored_size(&header)?;
            self.set_size(size)?;
            match header.entry_type() {
                EntryType::GNULongName => before.name = Some(self.text(size)?),
                EntryType::GNULongLink => before.target = Some(self.text(size)?),
                EntryType::XHeader => before.records.extend(records(&self.whole(size, MAX_RECORDS)?)?),
                EntryType::XGlobalHeader => {
                    for (key, value) in records(&self.whole(size, MAX_RECORDS)?)? {
                        self.global.insert(key, value);
                    }
                    if self.global.len() > 4096 {
                        return Err(bad("it has too many global records"));
                    }
                    continue;
                }
                _ => return self.entry(&header, before).map(Some),
            }
            any = true;
        }
    }

    fn set_size(&mut self, size: u64) -> io::Result<()> {
        if size > i64::MAX as u64 {
            return Err(bad("an entry is larger than any file"));
        }
        self.left = size;
        self.padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
        Ok(())
    }

    /// The next header; `None` where only zeros or nothing follows.
    fn header(&mut self) -> io::Result<Option<Header>> {
        self.skip()?;
        let mut header = Header::new_old();
        loop {
            if !fill(&mut self.source, header.as_mut_bytes())? {
                return Ok(None);
            }
            // A block of zeros ends the archive; some archives were appended to after theirs.
            if header.as_bytes().iter().any(|b| *b != 0) {
                break;
            }
        }
        let bytes = header.as_bytes();
        let sum: u32 = bytes[..148].iter().chain(&bytes[156..]).map(|b| u32::from(*b)).sum::<u32>() + 8 * 32;
        let signed: i32 =
            bytes[..148].iter().chain(&bytes[156..]).map(|b| i32::from(b.cast_signed())).sum::<i32>()
                + 8 * 32;
        let told = header.cksum().map_err(|_| bad("a checksum is no number"))?;
        if told != sum && i64::from(told) != i64::from(signed) {
            return Err(bad("a header's checksum is wrong"));
        }
        Ok(Some(header))
    }

    /// Skips the rest of the current entry.
    fn skip(&mut self) -> io::Result<()> {
        let skip = self.left + self.padding;
        (self.left, self.padding) = (0, 0);
        let skipped = io::copy(&mut (&mut self.source).take(skip), &mut io::sink())?;
        if skipped < skip { Err(bad("it ends within an entry")) } else { Ok(()) }
    }

    fn whole(&mut self, size: u64, bound: u64) -> io::Result<Vec<u8>> {
        if size > bound {
            return Err(bad("a name or record is too long"));
        }
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// A GNU long name, which may end with zeros.
    fn text(&mut self, size: u64) -> io::Result<Vec<u8>> {
        let mut text = self.whole(size, MAX_NAME)?;
        let end = text.iter().position(|b| *b == 0).unwrap_or(text.len());
        text.truncate(end);
        Ok(text)
    }

    fn entry(&mut self, header: &Header, before: Before) -> io::Result<Entry> {
        let mut entry = facts(header)?;
        if let Some(name) = before.name {
            entry.name = name;
        }
        if let Some(target) = before.target {
            entry.target = target;
        }
        let mut sparse = Sparse::default();
        let mut stored = stored_size(header)?;
        for (key, value) in self.global.iter().chain(before.records.iter().map(|(k, v)| (k, v))) {
            if key == b"size" {
                stored = number(value).ok_or_else(|| bad("a size is no number"))?;
            }
            apply(&mut entry, &mut sparse, key, value)?;
        }
        if let Some(name) = sparse.name.take() {
            entry.name = name;
        }
        // Only a file has content; other types may tell a size all the same.
        let has_content = entry.kind == Kind::File;
        self.set_size(if has_content || stored_anyway(header) { stored } else { 0 })?;
        entry.size = if has_content { stored } else { 0 };
        if header.entry_type() == EntryType::GNUSparse {
            self.gnu_pieces(header, &mut entry)?;
        } else if has_content && sparse.any {
            self.pax_pieces(sparse, &mut entry)?;
        }
        if let Some(pieces) = &entry.pieces {
            check_pieces(pieces, entry.size, self.left)?;
        }
        // A file whose name ends with a slash is a directory in the oldest archives.
        if entry.kind == Kind::File && entry.name.ends_with(b"/") {
            entry.kind = Kind::Directory;
        }
        if entry.name.contains(&0) || entry.target.contains(&0) {
            return Err(bad("a name has a zero in it"));
        }
        if entry.name.len() as u64 > MAX_NAME || entry.target.len() as u64 > MAX_NAME {
            return Err(bad("a name is too long"));
        }
        Ok(entry)
    }

    fn gnu_pieces(&mut self, header: &Header, entry: &mut Entry) -> io::Result<()> {
        let gnu = header.as_gnu().ok_or_else(|| bad("a sparse file has no GNU header"))?;
        let odd = |_| bad("a sparse file's map has no numbers");
        let mut pieces = Vec::new();
        let mut add = |list: &[tar::GnuSparseHeader]| -> io::Result<()> {
            for piece in list.iter().filter(|p| !p.is_empty()) {
                pieces.push((piece.offset().map_err(odd)?, piece.length().map_err(odd)?));
            }
            if pieces.len() > MAX_PIECES { Err(bad("a sparse file has too many pieces")) } else { Ok(()) }
        };
        add(&gnu.sparse)?;
        let mut more = gnu.is_extended();
        while more {
            let mut extension = GnuExtSparseHeader::new();
            if !fill(&mut self.source, extension.as_mut_bytes())? {
                return Err(bad("it ends within a sparse file's map"));
            }
            add(extension.sparse())?;
            more = extension.is_extended();
        }
        entry.size = gnu.real_size().map_err(odd)?;
        entry.pieces = Some(pieces);
        Ok(())
    }

    fn pax_pieces(&mut self, sparse: Sparse, entry: &mut Entry) -> io::Result<()> {
        entry.size = sparse.size.ok_or_else(|| bad("a sparse file has no size"))?;
        if !sparse.in_content {
            entry.pieces = Some(sparse.pieces);
            return Ok(());
        }
        // Version 1.0: the map is the content's beginning, one number a line, padded to a block.
        let count = self.line()?;
        if count > MAX_PIECES as u64 {
            return Err(bad("a sparse file has too many pieces"));
        }
        let mut pieces = Vec::new();
        for _ in 0..count {
            pieces.push((self.line()?, self.line()?));
        }
        let mut rest = [0; BLOCK];
        let used = usize::try_from((self.left + self.padding) % BLOCK as u64).unwrap_or(0);
        self.read_exact(&mut rest[..used.min(BLOCK)])?;
        entry.pieces = Some(pieces);
        Ok(())
    }

    fn line(&mut self) -> io::Result<u64> {
        let mut digits = Vec::new();
        loop {
            let mut byte = [0];
            self.read_exact(&mut byte)?;
            if byte[0] == b'\n' {
                return number(&digits).ok_or_else(|| bad("a sparse file's map has no numbers"));
            }
            digits.push(byte[0]);
            if digits.len() > 20 {
                return Err(bad("a sparse file's map has no numbers"));
            }
        }
    }

    /// Reads everything that follows the archive's end, up to the source's.
    pub fn finish(mut self) -> io::Result<u64> {
        io::copy(&mut self.source, &mut io::sink())
    }
}

/// The content of the current entry.
impl<R: Read> Read for Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let read = self.source.read(&mut buffer[..most])?;
        if read == 0 {
            return Err(bad("it ends within an entry"));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

/// Fills a block; false at the end of the source.
fn fill(source: &mut impl Read, block: &mut [u8]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < block.len() {
        match source.read(&mut block[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(bad("it ends within a header")),
            Ok(read) => filled += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

/// Whether an entry of this type has content in the archive even though it is no file: unknown types have.
fn stored_anyway(header: &Header) -> bool {
    use EntryType::{Block, Char, Continuous, Directory, Fifo, GNUSparse, Link, Regular, Symlink};
    !matches!(
        header.entry_type(),
        Regular | Continuous | GNUSparse | Link | Symlink | Char | Block | Directory | Fifo
    )
}

/// The size of an entry's content in the archive.
fn stored_size(header: &Header) -> io::Result<u64> {
    let size = field_number(&header.as_old().size).and_then(|size| u64::try_from(size).ok());
    size.ok_or_else(|| bad("a size is no number"))
}

fn facts(header: &Header) -> io::Result<Entry> {
    let kind = match header.entry_type() {
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => Kind::File,
        EntryType::Directory => Kind::Directory,
        EntryType::Symlink => Kind::Symlink,
        EntryType::Link => Kind::Link,
        EntryType::Char => Kind::Character,
        EntryType::Block => Kind::Block,
        EntryType::Fifo => Kind::Fifo,
        other => {
            return Err(bad(&format!("entries of type {:?} are not known", char::from(other.as_byte()))));
        }
    };
    let id = |field: &[u8]| {
        let id = field_number(field).and_then(|id| u32::try_from(id).ok()).filter(|id| *id != u32::MAX);
        id.ok_or_else(|| bad("an owner is no id"))
    };
    let devices = match (header.as_ustar(), header.as_gnu()) {
        (Some(ustar), _) => (&ustar.dev_major[..], &ustar.dev_minor[..]),
        (_, Some(gnu)) => (&gnu.dev_major[..], &gnu.dev_minor[..]),
        _ => (&b""[..], &b""[..]),
    };
    let device = |field: &[u8]| match kind {
        Kind::Character | Kind::Block => field_number(field)
            .and_then(|n| u32::try_from(n).ok())
            .ok_or_else(|| bad("a device has no number")),
        _ => Ok(0),
    };
    let fields = header.as_old();
    let mode = field_number(&fields.mode).ok_or_else(|| bad("a mode is no number"))?;
    Ok(Entry {
        name: header.path_bytes().into_owned(),
        kind,
        target: header.link_name_bytes().map(|t| t.into_owned()).unwrap_or_default(),
        mode: (mode & 0o7777) as u32,
        uid: id(&fields.uid)?,
        gid: id(&fields.gid)?,
        mtime: (field_number(&fields.mtime).unwrap_or(0), 0),
        device: (device(devices.0)?, device(devices.1)?),
        size: 0,
        xattrs: Vec::new(),
        pieces: None,
    })
}

/// A number of a header: octal digits among spaces and zeros, nothing at all, which is 0, or GNU's binary form.
fn field_number(field: &[u8]) -> Option<i64> {
    if let [first, rest @ ..] = field
        && first & 0x80 != 0
    {
        let negative = first & 0x40 != 0;
        let start = i128::from(first & 0x3f) - if negative { 0x40 } else { 0 };
        let value =
            rest.iter().try_fold(start, |sum, b| sum.checked_mul(256)?.checked_add(i128::from(*b)))?;
        return i64::try_from(value).ok();
    }
    let text = field.split(|b| *b == 0).next().unwrap_or_default().trim_ascii();
    if text.is_empty() {
        return Some(0);
    }
    i64::from_str_radix(std::str::from_utf8(text).ok()?, 8).ok().filter(|n| *n >= 0)
}

/// The PAX records of a sparse file.
#[derive(Default)]
struct Sparse {
    any: bool,
    in_content: bool,
    /// The file's name; `path` is then one that tells readers that know no sparse files what it is.
    name: Option<Vec<u8>>,
    size: Option<u64>,
    offset: Option<u64>,
    pieces: Vec<(u64, u64)>,
}

fn apply(entry: &mut Entry, sparse: &mut Sparse, key: &[u8], value: &[u8]) -> io::Result<()> {
    let id = || {
        let id = number(value).and_then(|id| u32::try_from(id).ok()).filter(|id| *id != u32::MAX);
        id.ok_or_else(|| bad("an owner is no id"))
    };
    let size = || number(value).ok_or_else(|| bad("a sparse file's map has no numbers"));
    match key {
        b"path" => entry.name = value.to_vec(),
        b"linkpath" => entry.target = value.to_vec(),
        b"uid" => entry.uid = id()?,
        b"gid" => entry.gid = id()?,
        b"mtime" => entry.mtime = time(value).ok_or_else(|| bad("a time is no number"))?,
        b"GNU.sparse.major" => {
            sparse.any = true;
            sparse.in_content = value == b"1";
        }
        b"GNU.sparse.name" => sparse.name = Some(value.to_vec()),
        b"GNU.sparse.size" | b"GNU.sparse.realsize" => {
            sparse.any = true;
            sparse.size = Some(size()?);
        }
        b"GNU.sparse.offset" => sparse.offset = Some(size()?),
        b"GNU.sparse.numbytes" => {
            let offset = sparse.offset.take().ok_or_else(|| bad("a sparse file's map has no numbers"))?;
            sparse.pieces.push((offset, size()?));
        }
        b"GNU.sparse.map" => {
            let numbers: Option<Vec<u64>> = value.split(|b| *b == b',').map(number).collect();
            let numbers = numbers.ok_or_else(|| bad("a sparse file's map has no numbers"))?;
            sparse.pieces = numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        }
        _ => {
            if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                entry.xattrs.retain(|(n, _)| n != name);
                entry.xattrs.push((name.to_vec(), value.to_vec()));
            }
        }
    }
    if sparse.pieces.len() > MAX_PIECES { Err(bad("a sparse file has too many pieces")) } else { Ok(()) }
}

/// Pieces go upwards, stay within the file, and are as long together as the content in the archive.
fn check_pieces(pieces: &[(u64, u64)], size: u64, stored: u64) -> io::Result<()> {
    let mut end = 0_u64;
    let mut sum = 0_u64;
    for (offset, length) in pieces {
        let next = offset.checked_add(*length).filter(|next| *offset >= end && *next <= size);
        end = next.ok_or_else(|| bad("a sparse file's map is not in order"))?;
        sum += length;
    }
    if sum == stored && i64::try_from(size).is_ok() {
        Ok(())
    } else {
        Err(bad("a sparse file's map is not its content's"))
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A time in seconds with a fraction, before 1970 too.
fn time(text: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let nanos: u32 = format!("{fraction:0<9.9}").parse().ok()?;
    match (whole.starts_with('-'), nanos) {
        (true, 1..) => Some((seconds.checked_sub(1)?, 1_000_000_000 - nanos)),
        _ => Some((seconds, nanos)),
    }
}

/// Keys and values.
type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// PAX records: `LENGTH KEY=VALUE\n`, the length that of the whole record.
fn records(mut bytes: &[u8]) -> io::Result<Records> {
    let odd = || bad("a PAX record is not well formed");
    let mut list = Vec::new();
    while !bytes.is_empty() {
        let space = bytes.iter().take(20).position(|b| *b == b' ').ok_or_else(odd)?;
        let length = number(&bytes[..space]).and_then(|n| usize::try_from(n).ok()).ok_or_else(odd)?;
        if length <= space + 1 || length > bytes.len() || bytes[length - 1] != b'\n' {
            return Err(odd());
        }
        let record = &bytes[space + 1..length - 1];
        let equals = record.iter().position(|b| *b == b'=').ok_or_else(odd)?;
        list.push((record[..equals].to_vec(), record[equals + 1..].to_vec()));
        bytes = &bytes[length..];
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_headers() {
        let check =
            |field: &[u8], expected: Option<i64>| assert_eq!(field_number(field), expected, "{field:?}");
        check(b"0000644\0", Some(0o644));
        check(b" 644 \0\0\0", Some(0o644));
        check(b"\0\0\0\0", Some(0));
        check(b"", Some(0));
        check(b"8\0", None);
        check(b"-1\0", None);
        check(b"\x80\0\0\x01\0", Some(256));
        check(b"\xff\xff\xff\xff", Some(-1));
        check(&[0x80, 255, 255, 255, 255, 255, 255, 255, 255, 255], None);
    }

    #[test]
    fn times_and_records() {
        assert_eq!(time(b"1.5"), Some((1, 500_000_000)));
        assert_eq!(time(b"-1.25"), Some((-2, 750_000_000)));
        assert_eq!(time(b"12"), Some((12, 0)));
        assert_eq!(time(b"1.0000000019"), Some((1, 1)));
        for bad in [&b""[..], b"x", b"1.x", b"1.-1", b"99999999999999999999"] {
            assert_eq!(time(bad), None, "{bad:?}");
        }
        let two = records(b"6 a=b\n11 c=d\n=e\n\n").unwrap();
        assert_eq!(two, [(b"a".to_vec(), b"b".to_vec()), (b"c".to_vec(), b"d\n=e\n".to_vec())]);
        for bad in
            [&b"5 a=b\n"[..], b"7 a=b\n", b"6 a=b ", b"a=b\n", b"6  ab\n", b"99999999999999999999 a=b\n"]
        {
            assert!(records(bad).is_err(), "{bad:?}");
        }
    }
}
