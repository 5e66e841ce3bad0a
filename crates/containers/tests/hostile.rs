//! Nonsense for the shim: whoever could speak to it, it goes on.

use std::os::fd::{AsFd, OwnedFd};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketType};

use crate::support::{Place, until, wait};

fn connect(place: &Place) -> OwnedFd {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let path = place.directory.path().join("pods/one/shim.sock");
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shim_outlives_nonsense() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let container = sandbox.create(place.container("c", &["sleep", "1000"])).await.unwrap();
    container.start().await.unwrap();
    let mut runner = TestRunner::deterministic();
    // Every operation but QUIT (11), with any words, without the descriptors that some need; and any bytes.
    let operation = (0..16u32).prop_filter("the shim ends", |op| *op != 11);
    let request = (operation, prop::array::uniform5(prop_oneof![0..4u32, 1000..1003u32, any::<u32>()]));
    let request =
        request.prop_filter("the container is signalled", |(op, w)| !(*op == 3 && w[1] == container_slot()));
    let bytes = prop::collection::vec(any::<u8>(), 0..64).prop_filter("a request", |b| b.len() != 24);
    for round in 0..300 {
        let socket = connect(&place);
        let sent = if round % 3 == 0 {
            bytes.new_tree(&mut runner).unwrap().current()
        } else {
            let (op, words) = request.new_tree(&mut runner).unwrap().current();
            let words = std::iter::once(op).chain(words);
            words.flat_map(u32::to_le_bytes).collect()
        };
        let _ = rustix::net::send(socket.as_fd(), &sent, SendFlags::NOSIGNAL);
        drop(socket);
    }
    let (code, output) = crate::streams::exec(&container, &["echo", "there"]).await;
    assert_eq!((code, output.as_str()), (0, "there\n"));
    assert!(sandbox.alive());
    container.kill(9).await.unwrap();
    assert_eq!(wait(&container).await.code, 137);
    place.end().await;
}

/// The first container's number in its shim.
fn container_slot() -> u32 {
    2
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_say_nothing_do_not_keep_the_runtime_out() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let silent: Vec<OwnedFd> = (0..3).map(|_| connect(&place)).collect();
    let (code, _) = place.run(&sandbox, place.container("c", &["true"])).await;
    assert_eq!(code, 0);
    drop(silent);
    until("a place", || rustix::net::send(connect(&place).as_fd(), b"", SendFlags::NOSIGNAL).is_ok()).await;
    place.end().await;
}
