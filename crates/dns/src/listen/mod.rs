//! The sockets on which questions come.

mod tcp;
mod udp;

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;

use component::Shutdown;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};

use crate::resolver::Resolver;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// How often a port is looked for that is free for both.
const TRIES: usize = 10;

/// The sockets of one address.
pub(crate) struct Bound {
    pub(crate) address: SocketAddr,
    udp: Vec<UdpSocket>,
    tcp: TcpListener,
}

/// A socket that does not block.
fn socket(address: SocketAddr, kind: SocketType) -> io::Result<rustix::fd::OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    Ok(fd)
}

impl Bound {
    /// Binds an address, with so many sockets for datagrams, among which the kernel divides clients. Port 0 becomes one
    /// that is free.
    pub(crate) fn bind(address: SocketAddr, sockets: usize) -> io::Result<Self> {
        let mut bound = Self::try_bind(address, sockets);
        for _ in 0..TRIES {
            if address.port() != 0 || bound.is_ok() {
                break;
            }
            bound = Self::try_bind(address, sockets);
        }
        bound
    }

    fn try_bind(address: SocketAddr, sockets: usize) -> io::Result<Self> {
        let stream = socket(address, SocketType::STREAM)?;
        sockopt::set_socket_reuseaddr(&stream, true)?;
        bind(&stream, &address)?;
        listen(&stream, BACKLOG)?;
        let tcp = TcpListener::from(stream);
        let address = tcp.local_addr()?;
        let udp = (0..sockets.max(1)).map(|_| {
            let fd = socket(address, SocketType::DGRAM)?;
            if sockets > 1 {
                sockopt::set_socket_reuseport(&fd, true)?;
            }
            bind(&fd, &address)?;
            Ok(UdpSocket::from(fd))
        });
        Ok(Self { address, udp: udp.collect::<io::Result<_>>()?, tcp })
    }

    /// Answers questions until `shutdown`.
    pub(crate) fn serve(self, resolver: &Arc<Resolver>, shutdown: &Shutdown) -> io::Result<()> {
        for socket in self.udp {
            let socket = tokio::net::UdpSocket::from_std(socket)?;
            shutdown.spawn(udp::serve(Arc::new(socket), resolver.clone(), shutdown.clone()));
        }
        let listener = tokio::net::TcpListener::from_std(self.tcp)?;
        shutdown.spawn(tcp::serve(listener, resolver.clone(), shutdown.clone()));
        Ok(())
    }
}
