//! The things that tests of real kernels share: hosts that are network namespaces, and connections between them.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use netlink::{Address, LinkChange, Routing, namespace};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde_json::{Value, json};
use testkit::{Host, eventually};

use crate::cni::{Call, Request};
use crate::place::Place;

/// Does work in the network namespace of a host.
pub(crate) fn within<T: Send>(host: &Host, work: impl FnOnce() -> T + Send) -> T {
    let namespace = namespace::open(&host.network()).unwrap();
    namespace::within(namespace.as_fd(), work).unwrap()
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn place(dir: &Path) -> Place {
    Place::new(dir.join("net.d"), dir.join("bin"), dir, dir.join("run"))
}

/// The call of a runtime about a container whose network namespace is a host's.
pub(crate) fn request(command: &str, container: &str, namespace: &Path, more: Value) -> Request {
    let mut config = json!({ "cniVersion": "1.1.0", "name": "n" });
    for (name, value) in more.as_object().cloned().unwrap_or_default() {
        config[name] = value;
    }
    let call = Call {
        command: command.into(),
        container: container.into(),
        namespace: namespace.display().to_string(),
        interface: "eth0".into(),
        arguments: format!("K8S_POD_NAMESPACE=n;K8S_POD_NAME=p-{container};K8S_POD_UID=u"),
        config,
    };
    Request::read(&call).unwrap()
}

pub(crate) fn addresses(result: &Value) -> Vec<IpAddr> {
    let ips = result["ips"].as_array().unwrap();
    ips.iter().map(|one| ip(one["address"].as_str().unwrap().split('/').next().unwrap())).collect()
}

pub(crate) fn give(link: &str, address: &str) {
    let mut routing = Routing::open().unwrap();
    let link = routing.link(link).unwrap().unwrap().index;
    routing.change_link(link, &LinkChange { up: Some(true), ..LinkChange::default() }).unwrap();
    routing.add_address(&Address { link, address: ip(address), prefix: 24 }).unwrap();
}

/// The client whom a server on a host sees when another one connects to it; each sends a word to the other.
pub(crate) fn seen(server: &Host, at: SocketAddr, client: &Host, to: SocketAddr) -> anyhow::Result<IpAddr> {
    let listener = within(server, || TcpListener::bind(at))?;
    std::thread::scope(|scope| {
        let far = scope.spawn(move || -> anyhow::Result<IpAddr> {
            set_socket_timeout(&listener, Timeout::Recv, Some(Duration::from_secs(3)))?;
            let (mut stream, from) = listener.accept()?;
            stream.set_read_timeout(Some(Duration::from_secs(3)))?;
            stream.read_exact(&mut [0; 4])?;
            stream.write_all(b"pong")?;
            Ok(from.ip())
        });
        let near = within(client, || -> anyhow::Result<()> {
            let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(2))?;
            stream.set_read_timeout(Some(Duration::from_secs(3)))?;
            stream.write_all(b"ping")?;
            Ok(stream.read_exact(&mut [0; 4])?)
        });
        let from = far.join().unwrap();
        near?;
        from
    })
}

/// As [`seen`], once the kernel believes in links that just came up.
pub(crate) fn sees(server: &Host, at: (IpAddr, u16), client: &Host, to: (IpAddr, u16)) -> IpAddr {
    eventually("a connection", || seen(server, at.into(), client, to.into()).map(Some)).unwrap()
}

/// Links two hosts; each end has its name.
pub(crate) fn join((one, at_one): (&Host, &str), (two, at_two): (&Host, &str)) {
    let far = namespace::open(&two.network()).unwrap();
    within(one, || {
        let up = LinkChange { up: Some(true), ..LinkChange::default() };
        let to = LinkChange { namespace: Some(far.as_fd()), ..LinkChange::default() };
        Routing::open().unwrap().add_veth(at_one, &up, at_two, &to).unwrap();
    });
    within(two, || {
        let mut routing = Routing::open().unwrap();
        let link = routing.link(at_two).unwrap().unwrap().index;
        routing.change_link(link, &LinkChange { up: Some(true), ..LinkChange::default() }).unwrap();
    });
}
