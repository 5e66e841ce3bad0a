//! A connection to the system's bus, as far as logind is asked: calls with file descriptors, and signals.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream as Blocking};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::address::{self, Address};
use crate::message::{self, Argument, Call, FIXED, Kind, Malformed, Message};

/// How long an answer is waited for; that of D-Bus' own library.
const ANSWER: Duration = Duration::from_secs(25);
/// The most signals and file descriptors that wait to be looked at.
const WAITING: usize = 64;
/// The longest message of D-Bus.
const LONGEST: usize = 128 << 20;
/// The longest line while the connection is made.
const LINE: usize = 4096;

const BUS: &str = "org.freedesktop.DBus";
const BUS_PATH: &str = "/org/freedesktop/DBus";

/// Why the bus is of no use.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// There is none, or it hung up.
    #[error("the system bus cannot be reached: {0}")]
    Io(#[from] io::Error),
    /// It does not take this process.
    #[error("the system bus refuses this process: {0:?}")]
    Refused(String),
    /// It sent something else than messages.
    #[error("the system bus: {0}")]
    Malformed(#[from] Malformed),
    /// More came than anybody who means well sends.
    #[error("the system bus sends too much")]
    Flooded,
    /// A call was answered with an error.
    #[error("{method}: {name}: {text}")]
    Answer {
        /// The method.
        method: String,
        /// The name of the error.
        name: String,
        /// Its message.
        text: String,
    },
    /// A call was not answered in time.
    #[error("{0}: no answer in time")]
    Timeout(String),
    /// A call was answered with something else than its method has.
    #[error("{0}: the answer is not of the method's type")]
    Type(String),
}

/// A signal that a sender emitted.
#[derive(Debug)]
pub struct Signal(Message);

impl Signal {
    /// Whether an object emitted it, under this name.
    pub fn is(&self, path: &str, interface: &str, member: &str) -> bool {
        (self.0.path.as_str(), self.0.interface.as_str(), self.0.member.as_str()) == (path, interface, member)
    }

    /// The unique name of the sender.
    pub fn sender(&self) -> &str {
        &self.0.sender
    }

    /// The bool that it carries.
    pub fn boolean(&self) -> Option<bool> {
        self.0.boolean()
    }
}

/// The signals that are wanted. Every user of the machine may send others to a process, and these, too.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// The object that emits them.
    pub of: Object,
    /// Their name.
    pub member: &'static str,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    serial: u32,
    read: Vec<u8>,
    /// How many bytes still come of a message that is not read.
    skip: usize,
    descriptors: VecDeque<OwnedFd>,
    signals: VecDeque<Signal>,
    wanted: Option<Wanted>,
    /// The unique name of the service that emits them, as it was last.
    emitter: Option<String>,
}

impl Connection {
    /// Connects to the system's bus.
    ///
    /// # Errors
    /// There is none that takes this process.
    pub async fn system() -> Result<Self, BusError> {
        let mut error = io::Error::from(io::ErrorKind::NotFound);
        for address in address::of_system() {
            match connect(&address).await {
                Ok(stream) => return Self::over(stream).await,
                Err(why) => error = why,
            }
        }
        Err(error.into())
    }

    /// Says hello to the bus behind a socket.
    async fn over(stream: UnixStream) -> Result<Self, BusError> {
        let mut bus = Self {
            stream,
            serial: 0,
            read: Vec::new(),
            skip: 0,
            descriptors: VecDeque::new(),
            signals: VecDeque::new(),
            wanted: None,
            emitter: None,
        };
        let greeting = timeout(ANSWER, bus.authenticate()).await;
        greeting.map_err(|_| BusError::Timeout("AUTH".into()))??;
        bus.of_bus("Hello", &[]).await?;
        Ok(bus)
    }

    /// Says who this process is, which the kernel vouches for.
    async fn authenticate(&mut self) -> Result<(), BusError> {
        let uid = rustix::process::geteuid().as_raw().to_string();
        let uid = uid.bytes().fold(String::new(), |mut hex, digit| {
            let _ = write!(hex, "{digit:02x}");
            hex
        });
        self.stream.write_all(format!("\0AUTH EXTERNAL {uid}\r\n").as_bytes()).await?;
        self.expect("OK ").await?;
        self.stream.write_all(b"NEGOTIATE_UNIX_FD\r\n").await?;
        self.expect("AGREE_UNIX_FD").await?;
        self.stream.write_all(b"BEGIN\r\n").await?;
        Ok(())
    }

    /// Reads a line that begins with a word. Nothing follows it before the bus is spoken to.
    async fn expect(&mut self, word: &str) -> Result<(), BusError> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            if line.len() >= LINE {
                return Err(BusError::Flooded);
            }
            line.push(self.stream.read_u8().await?);
        }
        let text = String::from_utf8_lossy(&line);
        if text.starts_with(word) { Ok(()) } else { Err(BusError::Refused(text.trim_end().to_owned())) }
    }

    /// Calls a method of the bus itself.
    async fn of_bus(&mut self, member: &str, arguments: &[Argument<'_>]) -> Result<Message, BusError> {
        let call = Call { destination: BUS, path: BUS_PATH, interface: BUS, member, arguments };
        Ok(self.call(&call).await?.0)
    }

    /// Has signals sent here, and keeps these alone from now on.
    ///
    /// # Errors
    /// The bus is of no use.
    pub async fn subscribe(&mut self, wanted: Wanted) -> Result<(), BusError> {
        let Wanted { of: Object { service, path, interface }, member } = wanted;
        let rule = format!(
            "type='signal',sender='{service}',path='{path}',interface='{interface}',member='{member}'"
        );
        self.wanted = Some(wanted);
        self.of_bus("AddMatch", &[Argument::Text(&rule)]).await?;
        match self.owner(service).await {
            // It may come later.
            Err(BusError::Answer { .. }) => Ok(()),
            other => other.map(drop),
        }
    }

    /// The unique name of who has a well-known one.
    pub async fn owner(&mut self, name: &str) -> Result<String, BusError> {
        let answer = self.of_bus("GetNameOwner", &[Argument::Text(name)]).await?;
        let owner = answer.text().map(str::to_owned).ok_or_else(|| BusError::Type("GetNameOwner".into()))?;
        if self.wanted.is_some_and(|wanted| wanted.of.service == name) {
            self.emitter = Some(owner.clone());
        }
        Ok(owner)
    }

    /// Calls a method, and waits for the answer with its file descriptors; signals that come before it are kept.
    async fn call(&mut self, call: &Call<'_>) -> Result<(Message, Vec<OwnedFd>), BusError> {
        self.serial = self.serial.wrapping_add(1).max(1);
        let serial = self.serial;
        let method = || format!("{}.{}", call.interface, call.member);
        let asked = async {
            self.stream.write_all(&message::encode(serial, call)).await?;
            loop {
                let message = self.message().await?;
                if matches!(message.kind, Kind::Return | Kind::Error) && message.answers == Some(serial) {
                    let descriptors = self.take_descriptors(&message);
                    return Ok((message, descriptors));
                }
                self.keep(message)?;
            }
        };
        let answer = timeout(ANSWER, asked).await.map_err(|_| BusError::Timeout(method()))?;
        match answer {
            Ok((message, _)) if message.kind == Kind::Error => Err(BusError::Answer {
                method: method(),
                name: message.error.clone(),
                text: message.text().unwrap_or_default().to_owned(),
            }),
            other => other,
        }
    }

    /// Waits until there is a signal. A caller that does not wait until then loses none.
    pub async fn wait(&mut self) -> Result<(), BusError> {
        while self.signals.is_empty() {
            let message = self.message().await?;
            self.keep(message)?;
        }
        Ok(())
    }

    /// Takes the first signal.
    pub fn take(&mut self) -> Option<Signal> {
        self.signals.pop_front()
    }

    /// Keeps a signal that is wanted; descriptors that nobody asked for are closed. However many others send, those of the
    /// service are kept.
    fn keep(&mut self, message: Message) -> Result<(), BusError> {
        self.take_descriptors(&message);
        let Some(Wanted { of, member }) = self.wanted.filter(|_| message.kind == Kind::Signal) else {
            return Ok(());
        };
        let signal = Signal(message);
        if !signal.is(of.path, of.interface, member) {
            return Ok(());
        }
        let is_own = |signal: &Signal| self.emitter.as_deref() == Some(signal.sender());
        let own = is_own(&signal);
        if self.signals.iter().filter(|kept| is_own(kept) == own).count() < WAITING {
            self.signals.push_back(signal);
            Ok(())
        } else if own {
            Err(BusError::Flooded)
        } else {
            Ok(())
        }
    }

    fn take_descriptors(&mut self, message: &Message) -> Vec<OwnedFd> {
        let count = usize::try_from(message.descriptors).unwrap_or(usize::MAX).min(self.descriptors.len());
        self.descriptors.drain(..count).collect()
    }

    /// Reads a message. Nothing is lost if it is not waited for.
    async fn message(&mut self) -> Result<Message, BusError> {
        loop {
            if let Some(message) = self.whole()? {
                return Ok(message);
            }
            self.fill().await?;
        }
    }

    /// The first message that has come whole; none if more must come.
    fn whole(&mut self) -> Result<Option<Message>, BusError> {
        self.pass_over();
        let Some(fixed) = self.read.first_chunk::<FIXED>() else { return Ok(None) };
        let length = match message::length(fixed) {
            // Nobody who is asked here answers so much, but every user of the machine may send it.
            Err(Malformed::TooLong(length)) if length <= LONGEST => {
                self.skip = length;
                self.pass_over();
                return Ok(None);
            }
            other => other?,
        };
        if self.read.len() < length {
            return Ok(None);
        }
        let rest = self.read.split_off(length);
        let whole = std::mem::replace(&mut self.read, rest);
        Ok(Some(message::decode(&whole)?))
    }

    /// Drops what has come of a message that is not read. It is longer than what is read at once: everything that has come
    /// is a part of it.
    fn pass_over(&mut self) {
        if self.skip > 0 {
            self.descriptors.clear();
            self.skip = self.skip.saturating_sub(self.read.len());
            self.read.clear();
        }
    }

    /// Reads what has come, with the file descriptors beside it.
    async fn fill(&mut self) -> Result<(), BusError> {
        let mut bytes = [0; 4096];
        let most = if self.skip > 0 { self.skip.min(bytes.len()) } else { bytes.len() };
        let stream = &self.stream;
        let (count, descriptors) = stream
            .async_io(Interest::READABLE, || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
                let mut beside = RecvAncillaryBuffer::new(&mut space);
                let mut into = [IoSliceMut::new(&mut bytes[..most])];
                let got = recvmsg(stream, &mut into, &mut beside, RecvFlags::CMSG_CLOEXEC)?;
                let mut descriptors = Vec::new();
                for part in beside.drain() {
                    if let RecvAncillaryMessage::ScmRights(all) = part {
                        descriptors.extend(all);
                    }
                }
                Ok((got.bytes, descriptors))
            })
            .await?;
        if count == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        if self.descriptors.len() + descriptors.len() > WAITING {
            return Err(BusError::Flooded);
        }
        self.read.extend_from_slice(&bytes[..count]);
        self.descriptors.extend(descriptors);
        Ok(())
    }
}

/// Connects to a socket. A local socket takes or refuses at once.
async fn connect(address: &Address) -> io::Result<UnixStream> {
    match address {
        Address::Path(path) => UnixStream::connect(path).await,
        Address::Abstract(name) => {
            let stream = Blocking::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
            stream.set_nonblocking(true)?;
            UnixStream::from_std(stream)
        }
    }
}

/// An object of a service.
#[derive(Debug, Clone, Copy)]
pub struct Object {
    /// The service's well-known name.
    pub service: &'static str,
    /// The object's path.
    pub path: &'static str,
    /// The interface of its methods and properties.
    pub interface: &'static str,
}

impl Object {
    /// Calls a method with texts, and a number after them.
    async fn call(
        self,
        bus: &mut Connection,
        member: &str,
        texts: &[&str],
        number: Option<i32>,
    ) -> Result<(Message, Vec<OwnedFd>), BusError> {
        let texts = texts.iter().map(|text| Argument::Text(text));
        let arguments: Vec<Argument<'_>> = texts.chain(number.map(Argument::Int32)).collect();
        let Self { service: destination, path, interface } = self;
        bus.call(&Call { destination, path, interface, member, arguments: &arguments }).await
    }

    /// Calls a method that answers nothing.
    pub async fn order(
        self,
        bus: &mut Connection,
        member: &str,
        texts: &[&str],
        number: i32,
    ) -> Result<(), BusError> {
        self.call(bus, member, texts, Some(number)).await.map(drop)
    }

    /// Calls a method that answers with a file descriptor.
    pub async fn open(self, bus: &mut Connection, member: &str, texts: &[&str]) -> Result<OwnedFd, BusError> {
        let (answer, all) = self.call(bus, member, texts, None).await?;
        let number = answer.descriptor().and_then(|number| usize::try_from(number).ok());
        let wrong = || BusError::Type(format!("{}.{member}", self.interface));
        number.and_then(|number| all.into_iter().nth(number)).ok_or_else(wrong)
    }

    async fn property(self, bus: &mut Connection, name: &str) -> Result<Message, BusError> {
        let properties = Self { interface: "org.freedesktop.DBus.Properties", ..self };
        Ok(properties.call(bus, "Get", &[self.interface, name], None).await?.0)
    }

    /// A property that is a number.
    pub async fn number(self, bus: &mut Connection, name: &str) -> Result<u64, BusError> {
        let answer = self.property(bus, name).await?;
        answer.variant_u64().ok_or_else(|| BusError::Type(format!("{}.{name}", self.interface)))
    }

    /// A property that is true or false.
    pub async fn boolean(self, bus: &mut Connection, name: &str) -> Result<bool, BusError> {
        let answer = self.property(bus, name).await?;
        answer.variant_bool().ok_or_else(|| BusError::Type(format!("{}.{name}", self.interface)))
    }
}

#[cfg(test)]
mod tests;
