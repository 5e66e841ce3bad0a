//! The flows of datagrams of a place.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::net::{SendFlags, sendto};
use tokio::net::UdpSocket;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::limit::Ticket;

/// The longest datagram.
const LONGEST: usize = 65_535;
/// After so many datagrams others have their turn.
const BATCH: usize = 64;

/// The flows of a place.
#[derive(Debug, Default)]
pub(super) struct Flows {
    pub(super) by_client: Mutex<HashMap<SocketAddr, Arc<Flow>>>,
    /// The room for an answer, which all flows share.
    room: Mutex<Box<[u8]>>,
}

#[derive(Debug)]
pub(super) struct Flow {
    pub(super) to: SocketAddr,
    pub(super) socket: UdpSocket,
    /// The time of the last datagram, from either side.
    pub(super) last: Mutex<Instant>,
    pub(super) ended: CancellationToken,
    /// Its place among all that is led on.
    pub(super) _permit: Ticket,
}

impl Flows {
    /// Ends the flows whose endpoints do not serve any more.
    pub(super) fn keep(&self, serving: &[SocketAddr]) {
        self.end(|flow| !serving.contains(&flow.to));
    }

    /// Ends all flows.
    pub(super) fn clear(&self) {
        self.end(|_| true);
    }

    fn end(&self, which: impl Fn(&Flow) -> bool) {
        self.by_client.lock().retain(|_, flow| {
            let ends = which(flow);
            if ends {
                flow.ended.cancel();
            }
            !ends
        });
    }

    pub(super) fn remove(&self, client: SocketAddr, flow: &Arc<Flow>) {
        let mut flows = self.by_client.lock();
        if flows.get(&client).is_some_and(|known| Arc::ptr_eq(known, flow)) {
            flows.remove(&client);
        }
    }

    /// Passes the answers on that have come; tells whether there were any.
    pub(super) fn pass(&self, flow: &Flow, service: &UdpSocket, client: SocketAddr) -> io::Result<bool> {
        let mut room = self.room.lock();
        if room.is_empty() {
            *room = vec![0; LONGEST].into();
        }
        for n in 0..BATCH {
            match flow.socket.try_recv(&mut room) {
                // A datagram may be lost: one that cannot go now is.
                Ok(length) => drop(sendto(service, &room[..length], SendFlags::DONTWAIT, &client)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(n > 0),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
