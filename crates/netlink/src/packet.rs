//! Frames of one protocol on a link, as the link carries them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// The bytes of a `sockaddr_ll`: all frames of a protocol on a link.
struct LinkAddress([u8; 20]);

impl LinkAddress {
    fn new(link: u32, protocol: u16) -> Self {
        let mut bytes = [0; 20];
        bytes[..2].copy_from_slice(&AddressFamily::PACKET.as_raw().to_ne_bytes());
        bytes[2..4].copy_from_slice(&protocol.to_be_bytes());
        bytes[4..8].copy_from_slice(&link.to_ne_bytes());
        Self(bytes)
    }
}

// SAFETY: the function gets a pointer to the bytes of a whole `sockaddr_ll` and their number; they live until it
// returns. rustix has no type for such an address, and no crate that is kept makes one without `unsafe` either.
#[allow(unsafe_code, reason = "rustix takes addresses that it has no type for by an unsafe trait only")]
unsafe impl SocketAddrArg for LinkAddress {
    unsafe fn with_sockaddr<R>(&self, f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R) -> R {
        f(self.0.as_ptr().cast(), 20)
    }
}

/// A socket for the frames of one protocol on a link. It never blocks.
pub struct Frames(OwnedFd);

impl Frames {
    /// Opens it, in the network namespace of this thread. Frames of other links never come.
    pub fn open(link: u32, protocol: u16) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol nothing comes before it is bound.
        let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        rustix::net::bind(&socket, &LinkAddress::new(link, protocol))?;
        Ok(Self(socket))
    }

    /// Sends a frame, its header included.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        rustix::net::send(&self.0, frame, SendFlags::empty())?;
        Ok(())
    }

    /// Receives a frame, its header included; returns its length, or that of the buffer for a longer one.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (length, _) = rustix::net::recv(&self.0, buffer, RecvFlags::empty())?;
        Ok(length)
    }
}

impl AsFd for Frames {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
