//! Sockets that keep messages apart and carry descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::wire;

/// A pair of them: ours does not wait, theirs does.
pub(crate) fn pair() -> io::Result<(Socket, OwnedFd)> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    Ok((Socket::new(ours)?, theirs))
}

/// The address of a socket's file, short whatever its path is: an address has 108 bytes. It is good as long as the
/// directory's descriptor is open.
pub(crate) fn address(path: &Path) -> io::Result<(OwnedFd, SocketAddrUnix)> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    Ok((directory, SocketAddrUnix::new(short)?))
}

/// A socket that waits in tokio's way.
#[derive(Debug)]
pub(crate) struct Socket(AsyncFd<OwnedFd>);

/// A message.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
}

impl Socket {
    pub(crate) fn new(d: OwnedFd) -> io::Result<Self> {
        crate::raw::nonblocking(&d)?;
        crate::raw::registered(d, Interest::READABLE | Interest::WRITABLE).map(Self)
    }

    /// Connects to a listening one.
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let d = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let (_directory, address) = address(path)?;
        rustix::net::connect(&d, &address)?;
        Self::new(d)
    }

    /// Sends a message with descriptors, [`wire::FDS_A_MESSAGE`] at most.
    pub(crate) async fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.0.async_io(Interest::WRITABLE, |d| send(d.as_fd(), bytes, fds)).await
    }

    /// Receives a message; none of bytes and descriptors: the other side left.
    pub(crate) async fn receive(&self) -> io::Result<Received> {
        self.0.async_io(Interest::READABLE, |d| receive(d.as_fd())).await
    }
}

fn send(d: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(wire::FDS_A_MESSAGE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    rustix::net::sendmsg(d, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(d: BorrowedFd<'_>) -> io::Result<Received> {
    let mut bytes = [0u8; 64];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got =
        rustix::net::recvmsg(d, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(got) = message {
            fds.extend(got);
        }
    }
    Ok(Received { bytes: bytes[..got.bytes].to_vec(), fds })
}

/// The words of a message.
pub(crate) fn words<const N: usize>(bytes: &[u8]) -> Option<[u32; N]> {
    let mut out = [0; N];
    if bytes.len() < N * 4 {
        return None;
    }
    for (word, part) in out.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_le_bytes([part[0], part[1], part[2], part[3]]);
    }
    Some(out)
}

/// A message of words.
pub(crate) fn message(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}
