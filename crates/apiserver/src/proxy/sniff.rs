//! The content type of an answer whose backend names none: told from its first bytes, as servers written
//! with Go's net/http do (the rules are those of <https://mimesniff.spec.whatwg.org/>, with fewer types).

/// As many bytes as matter.
const LONGEST: usize = 512;

/// The beginnings of a page, after white space and in either case; a space or `>` follows.
const TAGS: [&str; 17] = [
    "<!DOCTYPE HTML",
    "<HTML",
    "<HEAD",
    "<SCRIPT",
    "<IFRAME",
    "<H1",
    "<DIV",
    "<FONT",
    "<TABLE",
    "<A",
    "<STYLE",
    "<TITLE",
    "<B",
    "<BODY",
    "<BR",
    "<P",
    "<!--",
];

const UTF8: &str = "text/plain; charset=utf-8";

/// First bytes and their type. A `?` stands for any byte.
const FIRST: [(&[u8], &str); 31] = [
    (b"%PDF-", "application/pdf"),
    (b"%!PS-Adobe-", "application/postscript"),
    (b"\xFE\xFF??", "text/plain; charset=utf-16be"),
    (b"\xFF\xFE??", "text/plain; charset=utf-16le"),
    (b"\xEF\xBB\xBF?", UTF8),
    (b"\x00\x00\x01\x00", "image/x-icon"),
    (b"\x00\x00\x02\x00", "image/x-icon"),
    (b"BM", "image/bmp"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"RIFF????WEBPVP", "image/webp"),
    (b"\x89PNG\r\n\x1A\n", "image/png"),
    (b"\xFF\xD8\xFF", "image/jpeg"),
    (b"FORM????AIFF", "audio/aiff"),
    (b"ID3", "audio/mpeg"),
    (b"OggS\x00", "application/ogg"),
    (b"MThd\x00\x00\x00\x06", "audio/midi"),
    (b"RIFF????AVI ", "video/avi"),
    (b"RIFF????WAVE", "audio/wave"),
    (b"\x1A\x45\xDF\xA3", "video/webm"),
    (b"??????????????????????????????????LP", "application/vnd.ms-fontobject"),
    (b"\x00\x01\x00\x00", "font/ttf"),
    (b"OTTO", "font/otf"),
    (b"ttcf", "font/collection"),
    (b"wOFF", "font/woff"),
    (b"wOF2", "font/woff2"),
    (b"\x1F\x8B\x08", "application/x-gzip"),
    (b"PK\x03\x04", "application/zip"),
    (b"Rar!\x1A\x07\x00", "application/x-rar-compressed"),
    (b"Rar!\x1A\x07\x01\x00", "application/x-rar-compressed"),
    (b"\x00asm", "application/wasm"),
];

/// The content type of what begins with `data`.
pub(super) fn content_type(data: &[u8]) -> &'static str {
    let data = data.get(..LONGEST).unwrap_or(data);
    let white = data.iter().take_while(|b| matches!(b, b'\t' | b'\n' | 0x0C | b'\r' | b' ')).count();
    let text = &data[white..];
    let tag = |tag: &&str| {
        text.split_at_checked(tag.len()).is_some_and(|(head, rest)| {
            head.eq_ignore_ascii_case(tag.as_bytes()) && matches!(rest.first(), Some(b' ' | b'>'))
        })
    };
    if TAGS.iter().any(tag) {
        return "text/html; charset=utf-8";
    }
    if text.starts_with(b"<?xml") {
        return "text/xml; charset=utf-8";
    }
    let known = |(pattern, _): &&(&[u8], &str)| {
        data.len() >= pattern.len() && data.iter().zip(*pattern).all(|(b, p)| b == p || *p == b'?')
    };
    if let Some((_, kind)) = FIRST.iter().find(known) {
        return kind;
    }
    if is_mp4(data) {
        return "video/mp4";
    }
    let binary = |b: &u8| matches!(b, 0x00..=0x08 | 0x0B | 0x0E..=0x1A | 0x1C..=0x1F);
    if text.iter().any(binary) { "application/octet-stream" } else { UTF8 }
}

/// Whether it begins with a box of type `ftyp` that names an `mp4` brand.
fn is_mp4(data: &[u8]) -> bool {
    let Some((size, _)) = data.split_first_chunk() else { return false };
    let size = u32::from_be_bytes(*size) as usize;
    let Some(brands) = data.get(4..size).filter(|_| size.is_multiple_of(4) && data.len() >= 12) else {
        return false;
    };
    // After the major brand comes its version.
    brands.starts_with(b"ftyp")
        && brands[4..].chunks(4).enumerate().any(|(i, brand)| i != 1 && brand.starts_with(b"mp4"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types() {
        let check = |data: &[u8], expected: &str| {
            assert_eq!(content_type(data), expected, "{:?}", String::from_utf8_lossy(data));
        };
        check(b"", UTF8);
        check(b"served\n", UTF8);
        check(b"{\"a\": 1}", UTF8);
        check("grüße \x1b[1m".as_bytes(), UTF8);
        check(b"\x00\x07", "application/octet-stream");
        check(b"a\x00", "application/octet-stream");
        check(b" \n<!doctype HTML><html>", "text/html; charset=utf-8");
        check(b"<a href=x>", "text/html; charset=utf-8");
        check(b"<abbr>", UTF8);
        check(b"<B", UTF8);
        check(b" <?xml version='1.0'?>", "text/xml; charset=utf-8");
        check(b"<axml", UTF8);
        check(b" %PDF-1.7", UTF8);
        check(b"%PDF-1.7", "application/pdf");
        check(b"\xEF\xBB\xBF", "text/plain; charset=utf-8");
        check(b"\xFF\xFEa", "text/plain; charset=utf-8");
        check(b"\xFF\xFEa\x00", "text/plain; charset=utf-16le");
        check(b"RIFF\x01\x02\x03\x04WAVEfmt ", "audio/wave");
        check(b"\x1F\x8B\x08\x00", "application/x-gzip");
        check(b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00isommp42", "video/mp4");
        check(b"\x00\x00\x00\x18ftypisom\x00\x00\x00\x00isomavc1", "application/octet-stream");
        check(b"\xFF\xFF\xFF\xFFftypmp42", UTF8);
        check(b"\x00\x00\x00\x00", "application/octet-stream");
        let mut late = vec![b' '; 600];
        late.push(0);
        check(&late, UTF8);
    }
}
