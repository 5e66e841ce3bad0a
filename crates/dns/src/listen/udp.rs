//! Questions in datagrams.

use std::io;
use std::sync::Arc;

use component::Shutdown;
use tokio::net::UdpSocket;

use crate::packet::Transport;
use crate::resolver::{Origin, Resolver, Step};

/// The longest question that is read; longer ones break off, and are malformed then.
const LONGEST: usize = 4096;
/// After so many packets others have their turn.
const BATCH: usize = 64;

/// Answers datagrams until `shutdown`.
pub(super) async fn serve(socket: Arc<UdpSocket>, resolver: Arc<Resolver>, shutdown: Shutdown) {
    let (mut packet, mut out) = (vec![0; LONGEST], Vec::with_capacity(LONGEST));
    while let Some(readable) = shutdown.run(socket.readable()).await {
        if readable.is_err() {
            return;
        }
        for _ in 0..BATCH {
            match socket.try_recv_from(&mut packet) {
                Ok((length, peer)) => {
                    let origin = Origin { transport: Transport::Udp, source: peer.ip() };
                    match resolver.step(&packet[..length], origin, &mut out) {
                        // A datagram may be lost: one that cannot go now is.
                        Step::Reply => drop(socket.try_send_to(&out, peer)),
                        Step::Drop => {}
                        Step::Later(pending) => {
                            let (socket, resolver) = (socket.clone(), resolver.clone());
                            shutdown.spawn_one(async move {
                                let mut out = Vec::new();
                                resolver.finish(*pending, &mut out).await;
                                // The client asks again if it got nothing.
                                let _ = socket.send_to(&out, peer).await;
                            });
                        }
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // An error of an answer that was sent before, which the kernel tells here.
                Err(error) => tracing::debug!(%error, "a datagram was not delivered"),
            }
        }
        tokio::task::yield_now().await;
    }
}
