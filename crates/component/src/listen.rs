//! The sockets on which components listen.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// How many connections wait to be accepted; the system's limit is mostly lower. Go's.
const BACKLOG: u32 = 4096;

/// Listens at an address. With `shared`, other processes that say so, too, may listen there at the same time
/// (`SO_REUSEPORT`), and the kernel spreads connections over them.
///
/// # Errors
/// Those of the system.
pub fn listen(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    // As in Go, so that connections of a process that has ended are not in the way.
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(shared)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_is_shared_by_those_who_want_to() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let check = |first: bool, second: bool, expected: bool| {
            let listening = listen(any, first).unwrap();
            assert_eq!(listen(listening.local_addr().unwrap(), second).is_ok(), expected, "{first} {second}");
        };
        check(true, true, true);
        check(true, false, false);
        check(false, true, false);
        check(false, false, false);
    }
}
