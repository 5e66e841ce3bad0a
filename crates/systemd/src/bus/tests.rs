use std::os::fd::AsFd;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::AsyncBufReadExt;

use super::*;

/// `Hello` as libraries of D-Bus send it.
const HELLO: &str = "6c01000100000000010000006d00000001016f00150000002f6f72672f667265656465736b746f702f4442757300000002017300140000006f72672e667265656465736b746f702e4442757300000000030173000500000048656c6c6f00000006017300140000006f72672e667265656465736b746f702e4442757300000000";
/// The answers of Debian's dbus-daemon: to `Hello`, to `AddMatch`, and that nobody has a name.
const NAMED: &str = "6c02010109000000010000003d00000006017300040000003a312e36000000000501750001000000080167000173000007017300140000006f72672e667265656465736b746f702e4442757300000000040000003a312e3600";
const MATCHED: &str = "6c02010100000000030000003500000006017300040000003a312e3600000000050175000200000007017300140000006f72672e667265656465736b746f702e4442757300000000";
const NO_OWNER: &str = "6c03010147000000040000007500000006017300040000003a312e360000000004017300290000006f72672e667265656465736b746f702e444275732e4572726f722e4e616d654861734e6f4f776e6572000000000000000501750003000000080167000173000007017300140000006f72672e667265656465736b746f702e444275730000000042000000436f756c64206e6f7420676574206f776e6572206f66206e616d6520276f72672e667265656465736b746f702e6c6f67696e31273a206e6f2073756368206e616d6500";
/// The name that was acquired, which the bus tells by a signal.
const ACQUIRED: &str = "6c04010109000000020000008d00000001016f00150000002f6f72672f667265656465736b746f702f4442757300000002017300140000006f72672e667265656465736b746f702e4442757300000000030173000c0000004e616d6541637175697265640000000006017300040000003a312e3600000000080167000173000007017300140000006f72672e667265656465736b746f702e4442757300000000040000003a312e3600";
/// Signals that busctl emitted: of a bool, of a variant with a number, and of one with a bool.
const GOES_DOWN: &str = "6c04010104000000020000007d00000001016f00170000002f6f72672f667265656465736b746f702f6c6f67696e3100020173001e0000006f72672e667265656465736b746f702e6c6f67696e312e4d616e616765720000030173001200000050726570617265466f7253687574646f776e000000000000080167000162000007017300040000003a312e370000000001000000";
const NUMBER: &str = "6c04010110000000020000007e00000001016f00170000002f6f72672f667265656465736b746f702f6c6f67696e3100020173001e0000006f72672e667265656465736b746f702e6c6f67696e312e4d616e616765720000030173001200000050726570617265466f7253687574646f776e000000000000080167000176000007017300050000003a312e31300000000174000000000000404b4c0000000000";
const BOOLEAN: &str = "6c04010108000000020000007e00000001016f00170000002f6f72672f667265656465736b746f702f6c6f67696e3100020173001e0000006f72672e667265656465736b746f702e6c6f67696e312e4d616e616765720000030173001200000050726570617265466f7253687574646f776e000000000000080167000176000007017300050000003a312e31310000000162000001000000";
/// An answer to the second call with one file descriptor, and a signal of a machine whose numbers are big-endian.
const DESCRIPTOR: &str = "6c0201010400000001000000230000000501750002000000080167000168000009017500010000000701730002000000 3a31000000000000 00000000";
const BIG: &str = "42040101000000040000000100000010 0801670001620000 0501750000000007 00000001";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

fn decode(hex: &str) -> Message {
    message::decode(&bytes(hex)).unwrap()
}

#[test]
fn a_call_is_what_others_send() {
    let call = Call { destination: BUS, path: BUS_PATH, interface: BUS, member: "Hello", arguments: &[] };
    assert_eq!(message::encode(1, &call), bytes(HELLO));
    let arguments = &[Argument::Text("unit"), Argument::Text("all"), Argument::Int32(1)];
    let whole = message::encode(7, &Call { arguments, ..call });
    let read = message::decode(&whole).unwrap();
    assert_eq!((read.kind, read.member.as_str(), read.text()), (Kind::Call, "Hello", Some("unit")));
    assert!(whole.ends_with(&[3, 0, 0, 0, b'a', b'l', b'l', 0, 1, 0, 0, 0]), "{whole:?}");
}

/// Each value begins at a multiple of its own size, elements of arrays, too.
#[test]
fn properties_are_arrays_of_variants() {
    use crate::message::Value;
    let call = Call { destination: BUS, path: BUS_PATH, interface: BUS, member: "Hello", arguments: &[] };
    let properties = [("A", Value::Number(7)), ("B", Value::Bool(true)), ("C", Value::Texts(&["x", "yz"]))];
    let arguments =
        &[Argument::Text("u"), Argument::Bool(true), Argument::Properties(&properties), Argument::NoUnits];
    let whole = message::encode(7, &Call { arguments, ..call });
    let expected = bytes(
        "01000000 7500 0000 01000000 47000000 \
         01000000 4100 017400 00000000000000 0700000000000000 \
         01000000 4200 016200 000000 01000000 \
         01000000 4300 02617300 0000 0f000000 01000000 7800 0000 02000000 797a00 \
         00 00000000 00000000",
    );
    let body = &whole[whole.len() - expected.len()..];
    assert_eq!(body, expected, "{body:02x?}");
}

#[test]
fn messages_of_a_real_bus_are_read() {
    let named = decode(NAMED);
    assert_eq!((named.kind, named.answers, named.text()), (Kind::Return, Some(1), Some(":1.6")));
    assert_eq!((decode(MATCHED).answers, decode(MATCHED).text()), (Some(2), None));
    let no_owner = decode(NO_OWNER);
    assert_eq!(no_owner.error, "org.freedesktop.DBus.Error.NameHasNoOwner");
    assert_eq!(no_owner.text(), Some("Could not get owner of name 'org.freedesktop.login1': no such name"));
    let signal = Signal(decode(GOES_DOWN));
    let (path, manager) = ("/org/freedesktop/login1", "org.freedesktop.login1.Manager");
    assert!(signal.is(path, manager, "PrepareForShutdown") && !signal.is(path, manager, "PrepareForSleep"));
    assert_eq!((signal.sender(), signal.boolean()), (":1.7", Some(true)));
    assert_eq!((decode(NUMBER).variant_u64(), decode(NUMBER).variant_bool()), (Some(5_000_000), None));
    assert_eq!((decode(BOOLEAN).variant_bool(), decode(BOOLEAN).variant_u64()), (Some(true), None));
    let descriptor = decode(DESCRIPTOR);
    assert_eq!((descriptor.descriptors, descriptor.descriptor()), (1, Some(0)));
    assert_eq!((decode(BIG).boolean(), decode(BIG).answers), (Some(true), Some(7)));
}

/// Whatever comes is read or refused; nothing is read beyond a message's end.
#[test]
fn anything_is_a_message_or_none() {
    let all = [NAMED, MATCHED, NO_OWNER, ACQUIRED, GOES_DOWN, NUMBER, DESCRIPTOR, BIG];
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..20_000 {
        let mut changed = bytes(all[random.usize(..all.len())]);
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..changed.len());
            changed[at] = random.u8(..);
        }
        changed.truncate(random.usize(1..=changed.len()));
        if let Ok(message) = message::decode(&changed) {
            let _ = (message.text(), message.boolean(), message.descriptor());
            let _ = (message.variant_u64(), message.variant_bool());
        }
    }
    let mut long = bytes(NAMED);
    long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(message::decode(&long), Err(Malformed::TooLong(_))));
}

/// The other end of a connection.
struct Peer(tokio::io::BufReader<UnixStream>);

impl Peer {
    /// Takes a connection, and answers its `Hello`.
    async fn greet(stream: UnixStream) -> Self {
        let mut peer = Self(tokio::io::BufReader::new(stream));
        for answer in ["OK 0123\r\n", "AGREE_UNIX_FD\r\n", ""] {
            let mut line = String::new();
            peer.0.read_line(&mut line).await.unwrap();
            peer.0.write_all(answer.as_bytes()).await.unwrap();
        }
        peer.call().await;
        peer.send(&[NAMED, ACQUIRED]).await;
        peer
    }

    /// Reads a call.
    async fn call(&mut self) -> Message {
        let mut all = vec![0; FIXED];
        self.0.read_exact(&mut all).await.unwrap();
        all.resize(message::length(all.first_chunk().unwrap()).unwrap(), 0);
        self.0.read_exact(&mut all[FIXED..]).await.unwrap();
        message::decode(&all).unwrap()
    }

    /// Answers who asks for signals: that it gets them, and who emits them.
    async fn wanted(&mut self, emitter: &str) {
        let rule = self.call().await;
        assert!(rule.text().is_some_and(|rule| rule.contains("member='PrepareForShutdown'")), "{rule:?}");
        self.send(&[MATCHED]).await;
        assert_eq!(self.call().await.text(), Some("org.freedesktop.login1"));
        let third = NAMED.replacen("0501750001000000", "0501750003000000", 1);
        self.0.write_all(&named(&bytes(&third), emitter)).await.unwrap();
    }

    /// Sends a message that is too long, with a file descriptor.
    async fn long(&mut self, body: u32) {
        let mut long = bytes(GOES_DOWN);
        let header = long.len() - 4;
        long.truncate(header);
        long[4..8].copy_from_slice(&body.to_le_bytes());
        long.resize(header + body as usize, 7);
        let file = tempfile::tempfile().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let one = [file.as_fd()];
        assert!(beside.push(SendAncillaryMessage::ScmRights(&one)));
        let parts = [std::io::IoSlice::new(&long[..100])];
        sendmsg(self.0.get_ref(), &parts, &mut beside, SendFlags::empty()).unwrap();
        self.0.write_all(&long[100..]).await.unwrap();
    }

    async fn send(&mut self, messages: &[&str]) {
        self.0.write_all(&messages.iter().flat_map(|hex| bytes(hex)).collect::<Vec<_>>()).await.unwrap();
    }
}

#[tokio::test]
async fn calls_are_answered_and_signals_kept() {
    let (own, other) = UnixStream::pair().unwrap();
    let serve = async {
        let mut peer = Peer::greet(other).await;
        let call = peer.call().await;
        assert_eq!((call.member.as_str(), call.text()), ("Open", Some("a")));
        peer.send(&[GOES_DOWN]).await;
        let (file, all) = (tempfile::tempfile().unwrap(), bytes(DESCRIPTOR));
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let one = [file.as_fd()];
        assert!(beside.push(SendAncillaryMessage::ScmRights(&one)));
        let parts = [std::io::IoSlice::new(&all)];
        sendmsg(peer.0.get_ref(), &parts, &mut beside, SendFlags::empty()).unwrap();
        peer.call().await;
        peer.send(&[NO_OWNER]).await;
        peer
    };
    let ask = async {
        let mut bus = Connection::over(own).await.unwrap();
        let object = Object { service: "s", path: "/", interface: "i" };
        object.open(&mut bus, "Open", &["a"]).await.unwrap();
        assert!(bus.descriptors.is_empty());
        let error = bus.owner("org.freedesktop.login1").await.unwrap_err().to_string();
        let text = "org.freedesktop.DBus.GetNameOwner: org.freedesktop.DBus.Error.NameHasNoOwner: Could not get owner of name 'org.freedesktop.login1': no such name";
        assert_eq!(error, text);
        // Nobody asked for signals yet.
        assert!(bus.take().is_none());
        bus
    };
    let (mut bus, peer) = tokio::join!(ask, serve);
    drop(peer);
    assert!(matches!(bus.wait().await, Err(BusError::Io(_))));
}

#[tokio::test]
async fn a_bus_that_refuses_or_floods_is_left() {
    let (own, mut other) = UnixStream::pair().unwrap();
    other.write_all(b"REJECTED EXTERNAL\r\n").await.unwrap();
    let error = Connection::over(own).await.unwrap_err().to_string();
    assert_eq!(error, "the system bus refuses this process: \"REJECTED EXTERNAL\"");

    let (own, mut other) = UnixStream::pair().unwrap();
    other.write_all(&[b'x'; 2 * LINE]).await.unwrap();
    assert!(matches!(Connection::over(own).await, Err(BusError::Flooded)));

    let (own, other) = UnixStream::pair().unwrap();
    let flood = async {
        let mut peer = Peer::greet(other).await;
        peer.wanted(":1.7").await;
        peer.send(&[GOES_DOWN; 2 * WAITING]).await;
        peer
    };
    let ask = async {
        let mut bus = Connection::over(own).await.unwrap();
        bus.subscribe(WANTED).await.unwrap();
        assert!(matches!(bus.owner("x").await, Err(BusError::Flooded)));
    };
    tokio::join!(ask, flood);
}

const MANAGER: Object = Object {
    service: "org.freedesktop.login1",
    path: "/org/freedesktop/login1",
    interface: "org.freedesktop.login1.Manager",
};
const WANTED: Wanted = Wanted { of: MANAGER, member: "PrepareForShutdown" };

/// Users of the machine may send what they like: other signals, those of the login manager, more than is ever read.
#[tokio::test]
async fn nobody_else_keeps_signals_from_coming() {
    let (own, other) = UnixStream::pair().unwrap();
    let serve = async {
        let mut peer = Peer::greet(other).await;
        peer.wanted(":1.7").await;
        peer.send(&[ACQUIRED; 5 * WAITING]).await;
        let forged = replaced(&bytes(GOES_DOWN), b":1.7", b":1.9");
        for _ in 0..5 * WAITING {
            peer.0.write_all(&forged).await.unwrap();
        }
        peer.long(70 << 10).await;
        peer.send(&[GOES_DOWN]).await;
        peer.call().await;
        peer.send(&[&fourth(NAMED)]).await;
        peer
    };
    let ask = async {
        let mut bus = Connection::over(own).await.unwrap();
        bus.subscribe(WANTED).await.unwrap();
        assert_eq!(bus.owner("x").await.unwrap(), ":1.6");
        let senders: Vec<String> =
            std::iter::from_fn(|| bus.take().map(|signal| signal.sender().to_owned())).collect();
        assert_eq!(senders.iter().filter(|sender| *sender == ":1.9").count(), WAITING);
        assert_eq!(senders.last().map(String::as_str), Some(":1.7"));
        assert_eq!((senders.len(), bus.descriptors.len()), (WAITING + 1, 0));
    };
    tokio::join!(ask, serve);
}

/// The answer of a name, with another one of the same length: at its end.
fn named(answer: &[u8], name: &str) -> Vec<u8> {
    let mut answer = answer.to_vec();
    let end = answer.len() - 1;
    answer[end - name.len()..end].copy_from_slice(name.as_bytes());
    answer
}

/// A message with another text of the same length in place of one.
fn replaced(message: &[u8], text: &[u8], by: &[u8]) -> Vec<u8> {
    let at = message.windows(text.len()).position(|part| part == text).unwrap();
    [&message[..at], by, &message[at + text.len()..]].concat()
}

/// The answer to the first call as one to the fourth.
fn fourth(answer: &str) -> String {
    answer.replacen("0501750001000000", "0501750004000000", 1)
}

#[tokio::test]
async fn a_call_that_is_not_answered_ends() {
    let (own, other) = UnixStream::pair().unwrap();
    let (bus, peer) = tokio::join!(Connection::over(own), Peer::greet(other));
    tokio::time::pause();
    let error = bus.unwrap().owner("x").await.unwrap_err().to_string();
    assert_eq!(error, "org.freedesktop.DBus.GetNameOwner: no answer in time");
    drop(peer);
}
