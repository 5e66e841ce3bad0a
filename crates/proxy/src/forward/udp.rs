//! Datagrams. Those of a client's port are a flow, which stays with its endpoint.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::sockopt::{set_ip_freebind, set_ipv6_freebind};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, send, socket_with};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::flows::{Flow, Flows};
use super::open::Open;

/// How long a flow without datagrams is remembered, before an answer and after it; the kernel's
/// `nf_conntrack_udp_timeout` and `nf_conntrack_udp_timeout_stream`.
const IDLE: [Duration; 2] = [Duration::from_secs(30), Duration::from_mins(2)];
/// The longest datagram.
const LONGEST: usize = 65_535;

/// Opens a socket at an address that need not be a link's.
pub(super) fn socket(at: SocketAddr) -> io::Result<UdpSocket> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
    if at.is_ipv4() {
        set_ip_freebind(&socket, true)?;
    } else {
        set_ipv6_freebind(&socket, true)?;
    }
    bind(&socket, &at)?;
    UdpSocket::from_std(socket.into())
}

/// Leads datagrams on until the place is closed.
pub(super) async fn serve(socket: UdpSocket, open: Arc<Open>) {
    let socket = Arc::new(socket);
    let mut room = vec![0; LONGEST];
    while let Some(received) = open.shutdown.run(socket.recv_from(&mut room)).await {
        // An error is of an answer that was sent before, which the kernel tells here.
        let Ok((length, client)) = received else { continue };
        let known = open.flows.by_client.lock().get(&client).cloned();
        let flow = match known {
            Some(flow) => flow,
            None => match begin(&socket, client, &open) {
                Some(flow) => flow,
                // A datagram may be lost: one that nobody takes is.
                None => continue,
            },
        };
        *flow.last.lock() = Instant::now();
        // The kernel is asked itself: tokio's socket would first wait to hear that it can be written to.
        if let Err(error) = send(&flow.socket, &room[..length], SendFlags::DONTWAIT)
            && error != Errno::AGAIN
        {
            // The endpoint refused an earlier one; the client's next datagram finds another.
            open.flows.remove(client, &flow);
            flow.ended.cancel();
        }
    }
}

fn begin(service: &Arc<UdpSocket>, client: SocketAddr, open: &Arc<Open>) -> Option<Arc<Flow>> {
    let targets = Arc::clone(&open.targets.read());
    let order = targets.order(client.ip(), &open.shared.clients.read());
    let to = *order.first()?;
    let place = open.shared.datagrams.take(client.ip())?;
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let connected = std::net::UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(to)?;
        socket.set_nonblocking(true)?;
        UdpSocket::from_std(socket)
    });
    let socket = match connected {
        Ok(socket) => socket,
        Err(error) => {
            tracing::debug!(service = %open.at, endpoint = %to, %error, "a datagram cannot be led on");
            return None;
        }
    };
    targets.led(client.ip(), to);
    let last = Mutex::new(Instant::now());
    let flow = Arc::new(Flow { to, socket, last, ended: CancellationToken::new(), _permit: place });
    open.flows.by_client.lock().insert(client, Arc::clone(&flow));
    let (service, open, own) = (Arc::clone(service), Arc::clone(open), Arc::clone(&flow));
    let shutdown = open.shared.shutdown.clone();
    shutdown.clone().spawn_one(async move {
        tokio::select! {
            () = flow.ended.cancelled() => {}
            _ = shutdown.run(answers(&flow, &open.flows, &service, client)) => {}
        }
        open.flows.remove(client, &flow);
    });
    Some(own)
}

/// Passes an endpoint's answers to the client until both are silent.
async fn answers(flow: &Flow, flows: &Flows, service: &UdpSocket, client: SocketAddr) {
    let mut idle = IDLE[0];
    loop {
        let due = *flow.last.lock() + idle;
        tokio::select! {
            readable = flow.socket.readable() => match readable.and_then(|()| flows.pass(flow, service, client)) {
                Ok(true) => {
                    *flow.last.lock() = Instant::now();
                    idle = IDLE[1];
                }
                Ok(false) => {}
                // An endpoint that refuses ends the flow.
                Err(_) => return,
            },
            () = sleep_until(due) => {
                if flow.last.lock().elapsed() >= idle {
                    return;
                }
            }
        }
    }
}
