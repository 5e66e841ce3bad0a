//! Connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use super::open::Open;
use super::targets::TRIES;

/// How long an endpoint may take to accept, the first one, the second one and so on; those of upstream's former proxy
/// of this kind.
const DIAL: [Duration; TRIES] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// How long a connection is silent before its other side is asked whether it is there; Go's.
const KEEP_IDLE: Duration = Duration::from_secs(15);
/// How long after an error of `accept` the next try comes.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Accepts connections until the place is closed; those that it led on go on.
pub(super) async fn serve(listener: TcpListener, open: Arc<Open>) {
    while let Some(accepted) = open.shutdown.run(listener.accept()).await {
        let Ok((client, peer)) = accepted else {
            open.shutdown.run(sleep(ACCEPT_AGAIN)).await;
            continue;
        };
        let Some(place) = open.shared.connections.take(peer.ip()) else {
            refuse(&client);
            continue;
        };
        let open = Arc::clone(&open);
        let shutdown = open.shared.shutdown.clone();
        shutdown.clone().spawn_one(async move {
            let _ = shutdown.run(lead(client, peer, &open)).await;
            drop(place);
        });
    }
}

/// Leads a connection to an endpoint.
async fn lead(mut client: TcpStream, peer: SocketAddr, open: &Open) {
    let targets = Arc::clone(&open.targets.read());
    let order = targets.order(peer.ip(), &open.shared.clients.read());
    for (at, limit) in order.iter().cycle().zip(DIAL) {
        match timeout(limit, TcpStream::connect(at)).await {
            Ok(Ok(mut endpoint)) => {
                targets.led(peer.ip(), *at);
                for end in [&client, &endpoint] {
                    // Neither waits to send more at once, and one whose other side is gone ends.
                    let _ = (
                        end.set_nodelay(true),
                        set_socket_keepalive(end, true),
                        set_tcp_keepidle(end, KEEP_IDLE),
                    );
                }
                // An end that breaks breaks the other: both are closed here.
                let _ = copy_bidirectional(&mut client, &mut endpoint).await;
                return;
            }
            Ok(Err(error)) => {
                tracing::debug!(service = %open.at, endpoint = %at, %error, "an endpoint refuses");
            }
            Err(_) => tracing::debug!(service = %open.at, endpoint = %at, "an endpoint does not answer"),
        }
    }
    refuse(&client);
}

/// Ends a connection as one that nobody took.
fn refuse(client: &TcpStream) {
    let _ = client.set_zero_linger();
}
