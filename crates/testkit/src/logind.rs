//! A login manager made by a test: systemd's, as far as a kubelet asks it, on a bus of its own.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use rustix::io::IoSlice;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::pipe::{PipeFlags, pipe_with};

const PATH: &str = "/org/freedesktop/login1";
const MANAGER: &str = "org.freedesktop.login1.Manager";
/// The unique names of the login manager and of the kubelet's connection.
const OWN: &str = ":1.1";
const PEER: &str = ":1.2";
/// The name of the bus.
const BUS: &str = "org.freedesktop.DBus";

#[derive(Default)]
struct State {
    delay: u64,
    preparing: bool,
    calls: Vec<String>,
    /// The other ends of the locks that were given.
    locks: Vec<OwnedFd>,
    peers: Vec<UnixStream>,
}

/// A login manager, and the bus on which it is.
pub struct Logind {
    state: Arc<Mutex<State>>,
    address: String,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Little-endian values behind each other, each at a multiple of its size.
#[derive(Default)]
struct Values(Vec<u8>);

impl Values {
    fn align(&mut self, to: usize) -> &mut Self {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
        self
    }

    fn number(&mut self, value: u32) -> &mut Self {
        self.align(4).0.extend(value.to_le_bytes());
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.number(text.len() as u32).0.extend(text.bytes().chain([0]));
        self
    }

    fn signature(&mut self, text: &str) -> &mut Self {
        self.0.push(text.len() as u8);
        self.0.extend(text.bytes().chain([0]));
        self
    }

    fn field(&mut self, code: u8, kind: &str, value: &str) -> &mut Self {
        self.align(8).0.push(code);
        self.signature(kind);
        if kind == "g" { self.signature(value) } else { self.text(value) }
    }
}

/// A message: its kind, the call it answers, whether a descriptor goes with it, its texts by their codes, its body.
fn message(
    kind: u8,
    answers: Option<u32>,
    descriptor: bool,
    fields: &[(u8, &str, &str)],
    body: &Values,
) -> Vec<u8> {
    let mut out = Values(vec![b'l', kind, 1, 1]);
    out.number(body.0.len() as u32).number(1).number(0);
    for (number, value) in [(5, answers), (9, descriptor.then_some(1))] {
        if let Some(value) = value {
            out.align(8).0.push(number);
            out.signature("u").number(value);
        }
    }
    for (code, kind, value) in fields {
        out.field(*code, kind, value);
    }
    let length = (out.0.len() - 16) as u32;
    out.0[12..16].copy_from_slice(&length.to_le_bytes());
    out.align(8);
    out.0.extend(&body.0);
    out.0
}

/// A call that came: its serial number, the texts of its header by their codes, its texts.
struct Call {
    serial: u32,
    fields: BTreeMap<u8, String>,
    texts: Vec<String>,
}

fn number(bytes: &[u8], at: usize) -> Result<usize> {
    let four = bytes.get(at..at + 4).context("a message ends too early")?;
    Ok(u32::from_le_bytes(four.try_into()?) as usize)
}

fn text(bytes: &[u8], at: &mut usize) -> Result<String> {
    *at = at.next_multiple_of(4);
    let length = number(bytes, *at)?;
    let text = bytes.get(*at + 4..*at + 4 + length).context("a text ends too early")?;
    *at += 4 + length + 1;
    Ok(String::from_utf8(text.to_vec())?)
}

fn read_call(stream: &mut UnixStream) -> Result<Call> {
    let mut bytes = vec![0; 16];
    stream.read_exact(&mut bytes)?;
    ensure!(bytes[0] == b'l' && bytes[1] == 1 && bytes[3] == 1, "no call: {bytes:?}");
    let (body, serial, fields) = (number(&bytes, 4)?, number(&bytes, 8)? as u32, number(&bytes, 12)?);
    let start = (16 + fields).next_multiple_of(8);
    bytes.resize(start + body, 0);
    stream.read_exact(&mut bytes[16..])?;
    let (mut at, mut all) = (16, BTreeMap::new());
    while at < 16 + fields {
        at = at.next_multiple_of(8);
        let (code, kind) = (bytes[at], bytes[at + 2]);
        at += 4;
        if kind == b'g' {
            let length = usize::from(bytes[at]);
            all.insert(code, String::from_utf8(bytes[at + 1..=at + length].to_vec())?);
            at += length + 2;
        } else {
            all.insert(code, text(&bytes, &mut at)?);
        }
    }
    let mut texts = Vec::new();
    at = start;
    for _ in all.get(&8).map_or("", String::as_str).bytes().filter(|kind| *kind == b's') {
        texts.push(text(&bytes, &mut at)?);
    }
    Ok(Call { serial, fields: all, texts })
}

/// Takes a connection, and answers its calls until it ends.
fn serve(mut stream: UnixStream, state: &Mutex<State>, drop_in: &Path) -> Result<()> {
    let mut line = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        line.push(byte[0]);
        if !line.ends_with(b"\r\n") {
            continue;
        }
        let said = String::from_utf8(std::mem::take(&mut line))?;
        match said.trim_start_matches('\0').trim_end() {
            auth if auth.starts_with("AUTH EXTERNAL ") => stream.write_all(b"OK 0123456789abcdef\r\n")?,
            "NEGOTIATE_UNIX_FD" => stream.write_all(b"AGREE_UNIX_FD\r\n")?,
            "BEGIN" => break,
            other => bail!("unexpected {other:?}"),
        }
    }
    lock(state).peers.push(stream.try_clone()?);
    loop {
        let call = read_call(&mut stream)?;
        answer(&stream, &call, state, drop_in)?;
    }
}

fn answer(mut stream: &UnixStream, call: &Call, state: &Mutex<State>, drop_in: &Path) -> Result<()> {
    let field = |code: u8| call.fields.get(&code).map_or("", String::as_str);
    let member = field(3);
    let mut state = lock(state);
    state.calls.push([&[member.to_owned()], call.texts.as_slice()].concat().join(" "));
    let sender = if field(6) == BUS { BUS } else { OWN };
    let mut body = Values::default();
    let mut descriptor = None;
    let signature = match (member, call.texts.last().map_or("", String::as_str)) {
        ("Hello", _) => {
            body.text(PEER);
            "s"
        }
        ("AddMatch" | "KillUnit", _) => "",
        ("GetNameOwner", _) => {
            body.text(OWN);
            "s"
        }
        ("Get", "InhibitDelayMaxUSec") => {
            body.signature("t").align(8).0.extend((state.delay * 1_000_000).to_le_bytes());
            "v"
        }
        ("Get", "PreparingForShutdown") => {
            body.signature("b").number(u32::from(state.preparing));
            "v"
        }
        ("Inhibit", _) => {
            let (own, theirs) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
            state.locks.push(own);
            descriptor = Some(theirs);
            body.number(0);
            "h"
        }
        _ => bail!("unexpected call of {member}"),
    };
    if member == "KillUnit" {
        let text = std::fs::read_to_string(drop_in).unwrap_or_default();
        let seconds = text.lines().find_map(|line| line.strip_prefix("InhibitDelayMaxSec=")?.parse().ok());
        state.delay = seconds.unwrap_or(state.delay);
    }
    let mut fields = vec![(7, "s", sender), (6, "s", PEER)];
    if !signature.is_empty() {
        fields.push((8, "g", signature));
    }
    let bytes = message(2, Some(call.serial), descriptor.is_some(), &fields, &body);
    let Some(descriptor) = descriptor else { return Ok(stream.write_all(&bytes)?) };
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let one = [descriptor.as_fd()];
    ensure!(beside.push(SendAncillaryMessage::ScmRights(&one)), "no room for a descriptor");
    let sent = sendmsg(stream, &[IoSlice::new(&bytes)], &mut beside, SendFlags::empty())?;
    ensure!(sent == bytes.len(), "a message was cut short");
    Ok(())
}

impl Logind {
    /// Serves at a socket. It waits so many seconds for those who ask it to, and as many as `drop_in` says once it is told to
    /// look at its settings.
    pub fn start(socket: &Path, delay: u64, drop_in: PathBuf) -> Result<Self> {
        let state = Arc::new(Mutex::new(State { delay, ..State::default() }));
        let listener = UnixListener::bind(socket)?;
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (state, drop_in) = (shared.clone(), drop_in.clone());
                std::thread::spawn(move || {
                    if let Err(error) = serve(stream, &state, &drop_in) {
                        lock(&state).calls.push(format!("end: {error:#}"));
                    }
                });
            }
        });
        Ok(Self { state, address: format!("unix:path={}", socket.display()) })
    }

    /// Its address, for the environment variable `DBUS_SYSTEM_BUS_ADDRESS`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The calls that came, each with its texts.
    pub fn calls(&self) -> Vec<String> {
        lock(&self.state).calls.clone()
    }

    /// How many ask it to wait.
    pub fn locks(&self) -> usize {
        let mut byte = [0];
        let held = |end: &&OwnedFd| rustix::io::read(end, &mut byte) == Err(rustix::io::Errno::AGAIN);
        lock(&self.state).locks.iter().filter(held).count()
    }

    /// Announces that the machine goes down, or that it does not after all.
    pub fn announce(&self, down: bool) -> Result<()> {
        lock(&self.state).preparing = down;
        self.signal(OWN, down)
    }

    /// Sends the same announcement in the name of somebody else.
    pub fn forge(&self, down: bool) -> Result<()> {
        self.signal(":1.99", down)
    }

    fn signal(&self, sender: &str, down: bool) -> Result<()> {
        let mut body = Values::default();
        body.number(u32::from(down));
        let fields = [
            (1, "o", PATH),
            (2, "s", MANAGER),
            (3, "s", "PrepareForShutdown"),
            (7, "s", sender),
            (8, "g", "b"),
        ];
        let bytes = message(4, None, false, &fields, &body);
        for peer in &lock(&self.state).peers {
            // One that has hung up hears nothing.
            let _ = (&mut &*peer).write_all(&bytes);
        }
        Ok(())
    }

    /// Ends all connections.
    pub fn hang_up(&self) {
        for peer in lock(&self.state).peers.drain(..) {
            let _ = peer.shutdown(std::net::Shutdown::Both);
        }
    }
}
