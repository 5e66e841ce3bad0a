//! The socket on which the server listens.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// How many connections wait to be accepted; the system's limit is mostly lower.
const BACKLOG: u32 = 1024;

/// Listens at an address; with `share`, beside other processes that share it, too (`SO_REUSEPORT`).
///
/// # Errors
/// Those of the system.
pub(crate) fn listen(address: SocketAddr, share: bool) -> io::Result<TcpListener> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    // As Go does for every listener: a socket that waits for its last packets is not in the way.
    socket.set_reuseaddr(true)?;
    if share {
        socket.set_reuseport(true)?;
    }
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_is_shared_by_those_who_want_to() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        for (share, expected) in [(true, true), (false, false)] {
            let first = listen(any, share).unwrap();
            let second = listen(first.local_addr().unwrap(), true);
            assert_eq!(second.is_ok(), expected);
        }
    }
}
