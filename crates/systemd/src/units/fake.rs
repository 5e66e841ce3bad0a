//! A bus with a systemd on it, for tests: it notes the calls, and answers as the test says. Whatever it reads is well
//! formed, since it comes from the test.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const MANAGER: &str = "org.freedesktop.systemd1.Manager";

/// A call of systemd.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Called {
    pub(crate) method: String,
    pub(crate) unit: String,
    /// Properties by name, their values as text.
    pub(crate) properties: Vec<(String, String)>,
}

/// The answer to a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    /// It is done; a job ends as done.
    Done,
    /// A job ends so.
    Job(&'static str),
    /// An error, by its name.
    Error(&'static str),
    /// None ever comes.
    Silence,
    /// The connection ends.
    HangUp,
}

type Act = dyn Fn(&Called) -> Answer + Send + Sync;

/// A bus with a systemd.
#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) socket: PathBuf,
    calls: Arc<Mutex<Vec<Called>>>,
}

impl Called {
    pub(crate) fn property(&self, name: &str) -> Option<&str> {
        self.properties.iter().rev().find(|(n, _)| n == name).map(|(_, value)| &**value)
    }
}

impl Fake {
    /// Listens in a directory.
    pub(crate) fn start(dir: &Path, act: impl Fn(&Called) -> Answer + Send + Sync + 'static) -> Self {
        let socket = dir.join("bus");
        let listener = UnixListener::bind(&socket).unwrap();
        let fake = Self { socket, calls: Arc::default() };
        let (act, calls): (Arc<Act>, _) = (Arc::new(act), fake.calls.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (act, calls) = (act.clone(), calls.clone());
                std::thread::spawn(move || serve(stream, &*act, &calls));
            }
        });
        fake
    }

    /// The calls until now.
    pub(crate) fn calls(&self) -> Vec<Called> {
        self.calls.lock().unwrap().clone()
    }
}

/// Serves a connection until it ends.
fn serve(stream: UnixStream, act: &Act, calls: &Mutex<Vec<Called>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    for answer in ["OK 0123\r\n", ""] {
        reader.read_line(&mut String::new()).ok()?;
        reader.get_mut().write_all(answer.as_bytes()).ok()?;
    }
    let mut wanted = false;
    loop {
        let (serial, interface, called) = read(&mut reader)?;
        let done = |signature, body: &[u8]| message(2, &[(5, Field::Number(serial))], signature, body);
        if interface != MANAGER {
            wanted = match &*called.method {
                "AddMatch" => true,
                "RemoveMatch" => false,
                _ => wanted,
            };
            let version = [1, b's', 0, 0, 8, 0, 0, 0, b'2', b'5', b'2', b'.', b'3', b'3', b'-', b'1', 0];
            let answer = if called.method == "Get" { done("v", &version) } else { done("", &[]) };
            reader.get_mut().write_all(&answer).ok()?;
            continue;
        }
        if called.method == "Subscribe" {
            reader.get_mut().write_all(&done("", &[])).ok()?;
            continue;
        }
        let is_job = matches!(&*called.method, "StartTransientUnit" | "StopUnit");
        let answer = act(&called);
        calls.lock().unwrap().push(called);
        let result = match answer {
            Answer::Done => "done",
            Answer::Job(result) => result,
            Answer::Silence => continue,
            Answer::HangUp => return None,
            Answer::Error(name) => {
                let fields = [(4, Field::Text(name)), (5, Field::Number(serial))];
                reader.get_mut().write_all(&message(3, &fields, "s", &text("no"))).ok()?;
                continue;
            }
        };
        if !is_job {
            reader.get_mut().write_all(&done("", &[])).ok()?;
            continue;
        }
        let job = format!("/org/freedesktop/systemd1/job/{serial}");
        reader.get_mut().write_all(&done("o", &text(&job))).ok()?;
        assert!(wanted, "nobody waits for the job");
        // Somebody else's job comes first.
        for (job, result) in [("/org/freedesktop/systemd1/job/0", "failed"), (&*job, result)] {
            let mut body = 7_u32.to_le_bytes().to_vec();
            for part in [job, "unit", result] {
                body.resize(body.len().next_multiple_of(4), 0);
                body.extend(text(part));
            }
            let fields = [(1, Field::Path("/x")), (2, Field::Text(MANAGER)), (3, Field::Text("JobRemoved"))];
            reader.get_mut().write_all(&message(4, &fields, "uoss", &body)).ok()?;
        }
    }
}

/// A field of a header.
enum Field<'a> {
    Number(u32),
    Text(&'a str),
    Path(&'a str),
}

fn text(text: &str) -> Vec<u8> {
    let mut out = (text.len() as u32).to_le_bytes().to_vec();
    out.extend(text.bytes());
    out.push(0);
    out
}

/// A message of systemd's.
fn message(kind: u8, fields: &[(u8, Field<'_>)], signature: &str, body: &[u8]) -> Vec<u8> {
    let mut out = vec![b'l', kind, 0, 1];
    out.extend((body.len() as u32).to_le_bytes());
    out.extend([9, 0, 0, 0, 0, 0, 0, 0]);
    let mut field = |code: u8, kind: u8, value: &[u8]| {
        out.resize(out.len().next_multiple_of(8), 0);
        out.extend([code, 1, kind, 0]);
        out.extend(value);
    };
    for (code, value) in fields {
        match value {
            Field::Number(number) => field(*code, b'u', &number.to_le_bytes()),
            Field::Text(value) => field(*code, b's', &text(value)),
            Field::Path(value) => field(*code, b'o', &text(value)),
        }
    }
    field(7, b's', &text(":1.1"));
    if !signature.is_empty() {
        field(8, b'g', &[&[signature.len() as u8], signature.as_bytes(), &[0]].concat());
    }
    let length = (out.len() - 16) as u32;
    out[12..16].copy_from_slice(&length.to_le_bytes());
    out.resize(out.len().next_multiple_of(8), 0);
    out.extend(body);
    out
}

/// Reads a call: its number, its interface, and what is called.
fn read(reader: &mut BufReader<UnixStream>) -> Option<(u32, String, Called)> {
    let mut fixed = [0; 16];
    reader.read_exact(&mut fixed).ok()?;
    let number = |at: usize| u32::from_le_bytes(fixed[at..at + 4].try_into().unwrap());
    let header = (16 + number(12) as usize).next_multiple_of(8);
    let mut all = fixed.to_vec();
    all.resize(header + number(4) as usize, 0);
    reader.read_exact(&mut all[16..]).ok()?;
    let mut values = Values { bytes: &all, at: 16 };
    let (mut called, mut interface, mut signature) = (Called::default(), String::new(), String::new());
    while values.at < 16 + number(12) as usize {
        values.align(8);
        let code = values.byte();
        let kind = values.signature();
        let value = values.one(&kind);
        match code {
            2 => interface = value,
            3 => called.method = value,
            8 => signature = value,
            _ => {}
        }
    }
    let mut values = Values { bytes: &all[header..], at: 0 };
    if signature.starts_with('s') {
        called.unit = values.text();
    }
    match &*signature {
        "ssa(sv)a(sa(sv))" => drop(values.text()),
        "sba(sv)" => drop(values.number()),
        _ => return Some((number(8), interface, called)),
    }
    let end = values.array(8);
    while values.at < end {
        values.align(8);
        let name = values.text();
        let kind = values.signature();
        let value = values.one(&kind);
        called.properties.push((name, value));
    }
    Some((number(8), interface, called))
}

/// Values behind each other, each at a multiple of its own size.
struct Values<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Values<'_> {
    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn byte(&mut self) -> u8 {
        self.at += 1;
        self.bytes[self.at - 1]
    }

    fn number(&mut self) -> u32 {
        self.align(4);
        self.at += 4;
        u32::from_le_bytes(self.bytes[self.at - 4..self.at].try_into().unwrap())
    }

    fn long(&mut self) -> u64 {
        self.align(8);
        self.at += 8;
        u64::from_le_bytes(self.bytes[self.at - 8..self.at].try_into().unwrap())
    }

    fn terminated(&mut self, length: usize) -> String {
        self.at += length + 1;
        String::from_utf8(self.bytes[self.at - length - 1..self.at - 1].to_vec()).unwrap()
    }

    fn text(&mut self) -> String {
        let length = self.number() as usize;
        self.terminated(length)
    }

    fn signature(&mut self) -> String {
        let length = usize::from(self.byte());
        self.terminated(length)
    }

    /// Where an array ends, whose elements begin at multiples of `to`.
    fn array(&mut self, to: usize) -> usize {
        let length = self.number() as usize;
        self.align(to);
        self.at + length
    }

    /// Elements of an array, separated by commas.
    fn list(&mut self, to: usize, mut one: impl FnMut(&mut Self) -> String) -> String {
        let end = self.array(to);
        let mut all = Vec::new();
        while self.at < end {
            self.align(to);
            all.push(one(self));
        }
        assert_eq!(self.at, end);
        all.join(",")
    }

    fn one(&mut self, kind: &str) -> String {
        match kind {
            "s" | "o" => self.text(),
            "g" => self.signature(),
            "b" => (self.number() == 1).to_string(),
            "t" => match self.long() {
                u64::MAX => "infinity".to_owned(),
                other => other.to_string(),
            },
            "as" => self.list(4, Self::text),
            "au" => self.list(4, |values| values.number().to_string()),
            "ay" => self.list(1, |values| values.byte().to_string()),
            "a(ss)" => self.list(8, |values| format!("{} {}", values.text(), values.text())),
            other => unreachable!("a value of the type {other}"),
        }
    }
}
