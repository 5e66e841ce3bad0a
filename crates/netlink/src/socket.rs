//! A netlink socket: requests, their answers, and the reasons of refusals.

use std::ffi::CStr;
use std::io;

use netlink_bindings::builtin::Nlmsghdr;
use netlink_bindings::traits::{NetlinkRequest, Protocol};
use netlink_bindings::utils::{align_up, find_attr};
use netlink_sys::SocketAddr;
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use rustix::io::Errno;

/// The flags of a message's header.
pub(crate) const REQUEST: u16 = 1;
pub(crate) const ACK: u16 = 4;
const DUMP_INTERRUPTED: u16 = 0x10;
const CAPPED: u16 = 0x100;
const ACK_TLVS: u16 = 0x200;
/// The types of messages that are no answers.
const NOOP: u16 = 1;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// The attribute of a refusal with the kernel's words.
const WORDS: u16 = 1;
/// The kernel's answers are no longer than what is offered here, and at most this long.
const LARGEST_ANSWER: usize = 64 << 10;
/// How often a list is read again because it changed meanwhile.
const READINGS: usize = 10;

/// The reason for which the kernel did not do something.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused it.
    #[error("{what}: {errno}{}{words}", if words.is_empty() { "" } else { ": " })]
    Refused {
        /// The thing that was to be done.
        what: String,
        /// The kernel's code.
        errno: Errno,
        /// The kernel's words, or nothing.
        words: String,
    },
    /// The socket failed.
    #[error("{what}: {source}")]
    Socket {
        /// The thing that was to be done.
        what: String,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// A list changed each time while it was read.
    #[error("{0}: the list changes faster than it can be read")]
    Changing(String),
    /// An answer was not understood.
    #[error("{0}: the kernel's answer is malformed")]
    Malformed(String),
}

impl Error {
    /// The kernel's code, if it refused.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { errno, .. } => Some(*errno),
            Self::Socket { source, .. } => Errno::from_io_error(source),
            _ => None,
        }
    }
    /// Whether the thing does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self.errno(), Some(Errno::NOENT | Errno::NODEV | Errno::SRCH | Errno::ADDRNOTAVAIL))
    }
    /// Whether the kernel has no such subsystem: it was built without, or its module is missing.
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self.errno(),
            Some(Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS)
        )
    }
    /// Whether the thing exists already.
    pub fn is_present(&self) -> bool {
        self.errno() == Some(Errno::EXIST)
    }
}

/// The subsystem of links, addresses, routes and neighbours of one network namespace: that of the thread that opened it.
pub struct Routing(pub(crate) Socket);

impl Routing {
    /// Opens a socket in the network namespace of this thread.
    pub fn open() -> Result<Self, Error> {
        Socket::open(NETLINK_ROUTE).map(Self)
    }
}

/// One socket; an answer belongs to the request before it.
pub(crate) struct Socket {
    socket: netlink_sys::Socket,
    sequence: u32,
    out: Vec<u8>,
    answer: Vec<u8>,
}

/// An answer's part.
enum Message<'a> {
    Payload(&'a [u8]),
    Nothing,
    Done,
    Refused(Errno, String),
}

impl Socket {
    fn open(protocol: isize) -> Result<Self, Error> {
        let failed = |source| Error::Socket { what: "cannot open a netlink socket".into(), source };
        let mut socket = netlink_sys::Socket::new(protocol).map_err(failed)?;
        socket.bind_auto().map_err(failed)?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(failed)?;
        socket.set_ext_ack(true).map_err(failed)?;
        socket.set_cap_ack(true).map_err(failed)?;
        if protocol == NETLINK_ROUTE {
            // Otherwise the kernel ignores what a list is asked for by.
            socket.set_netlink_get_strict_chk(true).map_err(failed)?;
        }
        Ok(Self { socket, sequence: 0, out: Vec::new(), answer: Vec::with_capacity(LARGEST_ANSWER) })
    }

    /// A socket of the packet filter and of tracked connections.
    pub(crate) fn open_netfilter() -> Result<Self, Error> {
        Self::open(NETLINK_NETFILTER)
    }

    /// Sends one request and waits until the kernel has done it. `what` begins the text of an error.
    pub(crate) fn call<R: NetlinkRequest>(&mut self, what: &str, request: &R) -> Result<(), Error> {
        self.each(what, request, |_| {})
    }

    /// Sends one request and gives each part of its answer away. A list that changed while it was read is given from
    /// its beginning: `restart` is called before.
    pub(crate) fn list<R: NetlinkRequest>(
        &mut self,
        what: &str,
        request: &R,
        mut restart: impl FnMut(),
        mut take: impl FnMut(R::ReplyType<'_>),
    ) -> Result<(), Error> {
        for _ in 0..READINGS {
            restart();
            if self.ask(what, request, |payload| take(R::decode_reply(payload)))? {
                return Ok(());
            }
        }
        Err(Error::Changing(what.into()))
    }

    /// As [`Self::list`], for a request with one answer at most.
    pub(crate) fn each<R: NetlinkRequest>(
        &mut self,
        what: &str,
        request: &R,
        mut take: impl FnMut(R::ReplyType<'_>),
    ) -> Result<(), Error> {
        self.ask(what, request, |payload| take(R::decode_reply(payload))).map(drop)
    }

    /// Whether the answer is of one moment.
    fn ask<R: NetlinkRequest>(
        &mut self,
        what: &str,
        request: &R,
        mut take: impl FnMut(&[u8]),
    ) -> Result<bool, Error> {
        let failed = |source| Error::Socket { what: what.to_owned(), source };
        self.sequence = self.sequence.wrapping_add(1);
        self.out.clear();
        message(&mut self.out, request, ACK, self.sequence);
        self.socket.send(&self.out, 0).map_err(failed)?;
        let mut whole = true;
        loop {
            self.receive(0).map_err(failed)?;
            let mut rest = &self.answer[..];
            while !rest.is_empty() {
                let (header, message, after) =
                    split(rest).ok_or_else(|| Error::Malformed(what.to_owned()))?;
                rest = after;
                if header.seq != self.sequence {
                    continue; // the answer of a request that failed halfway
                }
                whole &= header.flags & DUMP_INTERRUPTED == 0;
                match message {
                    Message::Payload(payload) => take(payload),
                    Message::Nothing => {}
                    Message::Done => return Ok(whole),
                    Message::Refused(errno, words) => {
                        return Err(Error::Refused { what: what.to_owned(), errno, words });
                    }
                }
            }
        }
    }

    /// Sends messages that the kernel takes as one, without an answer unless it refuses; `name` tells what the message
    /// with a sequence number was to do.
    pub(crate) fn transaction(&mut self, messages: &[u8], name: impl Fn(u32) -> String) -> Result<(), Error> {
        let failed =
            |source: io::Error| Error::Socket { what: "cannot change the packet filter".into(), source };
        // The kernel takes a message whole or not at all, whatever the usual limit of a socket is.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size_force(
            &self.socket,
            messages.len() + (64 << 10),
        );
        self.socket.send(messages, 0).map_err(failed)?;
        let mut refused = None;
        // The kernel has done it all when `send` returns; its refusals wait in the socket.
        loop {
            match self.receive(rustix::net::RecvFlags::DONTWAIT.bits() as i32) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(failed(error)),
            }
            let mut rest = &self.answer[..];
            while let Some((header, message, after)) = split(rest) {
                rest = after;
                if let Message::Refused(errno, words) = message
                    && refused.is_none()
                {
                    refused = Some(Error::Refused { what: name(header.seq), errno, words });
                }
            }
        }
        refused.map_or(Ok(()), Err)
    }

    fn receive(&mut self, flags: i32) -> io::Result<()> {
        self.answer.clear();
        loop {
            match self.socket.recv(&mut self.answer, flags) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Appends a request with its header.
pub(crate) fn message<R: NetlinkRequest>(to: &mut Vec<u8>, request: &R, flags: u16, sequence: u32) {
    let kind = match request.protocol() {
        Protocol::Raw { request_type, .. } => request_type,
        Protocol::Generic(_) => 0,
    };
    let mut header = Nlmsghdr::new();
    header.len = (Nlmsghdr::len() + request.payload().len()) as u32;
    header.r#type = kind;
    header.flags = request.flags() | REQUEST | flags;
    header.seq = sequence;
    to.extend_from_slice(header.as_slice());
    to.extend_from_slice(request.payload());
    to.resize(align_up(to.len(), 4), 0);
}

/// The first message of a buffer, and what comes after it.
fn split(buffer: &[u8]) -> Option<(Nlmsghdr, Message<'_>, &[u8])> {
    let header = Nlmsghdr::new_from_slice(buffer.get(..Nlmsghdr::len())?)?;
    let length = header.len as usize;
    let payload = buffer.get(Nlmsghdr::len()..length)?;
    let after = buffer.get(align_up(length, 4)..).unwrap_or_default();
    let message = match header.r#type {
        NOOP => Message::Nothing,
        ERROR | DONE => {
            let code = i32::from_ne_bytes(payload.get(..4)?.try_into().ok()?);
            if code == 0 {
                Message::Done
            } else {
                Message::Refused(Errno::from_raw_os_error(-code), words(&header, payload))
            }
        }
        _ => Message::Payload(payload),
    };
    Some((header, message, after))
}

/// The kernel's words about a refusal.
fn words(header: &Nlmsghdr, payload: &[u8]) -> String {
    if header.flags & ACK_TLVS == 0 {
        return String::new();
    }
    let request = payload.get(4..4 + Nlmsghdr::len()).and_then(Nlmsghdr::new_from_slice);
    let echoed = match (header.r#type, request) {
        (ERROR, Some(request)) if header.flags & CAPPED == 0 => align_up(request.len as usize, 4),
        (ERROR, _) => Nlmsghdr::len(),
        _ => 0,
    };
    let attributes = payload.get(4 + echoed..).unwrap_or_default();
    let text = find_attr(attributes, WORDS).and_then(|text| CStr::from_bytes_until_nul(text).ok());
    text.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}
