//! The plugin `loopback`, which runtimes call beside that of the pod network: it brings up a container's own loopback.

use std::os::fd::AsFd;
use std::path::Path;

use netlink::{LinkChange, Routing, namespace};
use serde_json::{Value, json};

use crate::cni::{Call, CniError, Command, Request, code};

/// The plugin's name, by which runtimes look for it.
pub(crate) const NAME: &str = "loopback";

/// Does what a runtime asks.
pub(crate) fn answer(call: &Call) -> Result<Value, CniError> {
    let request = Request::read(call)?;
    match request.command {
        Command::Add => {
            set_up(&request.namespace)?;
            Ok(request.previous.clone().unwrap_or_else(|| result(&request)))
        }
        Command::Check if !is_up(&request.namespace)? => {
            Err(CniError::new(code::IO, "the container's loopback is down"))
        }
        // The link goes with its namespace.
        Command::Del | Command::Check | Command::Gc | Command::Status => Ok(Value::Null),
    }
}

/// The answer to ADD, in the form of the version that the configuration has.
fn result(request: &Request) -> Value {
    let mut ip = json!({ "address": "127.0.0.1/8", "interface": 0 });
    if request.version.starts_with("0.") {
        ip["version"] = "4".into();
    }
    json!({
        "cniVersion": request.version,
        "interfaces": [{ "name": "lo", "mac": "00:00:00:00:00:00", "sandbox": request.namespace }],
        "ips": [ip],
        "dns": {},
    })
}

fn failed(error: impl std::fmt::Display) -> CniError {
    CniError::because(code::IO, "the container's loopback cannot be used", error)
}

fn set_up(path: &Path) -> Result<(), CniError> {
    let up = LinkChange { up: Some(true), ..LinkChange::default() };
    within(path, move |routing| match routing.link("lo")? {
        Some(link) => routing.change_link(link.index, &up),
        None => Ok(()),
    })
}

fn is_up(path: &Path) -> Result<bool, CniError> {
    within(path, |routing| Ok(routing.link("lo")?.is_some_and(|link| link.up)))
}

fn within<T: Send>(
    path: &Path,
    work: impl FnOnce(&mut Routing) -> Result<T, netlink::Error> + Send,
) -> Result<T, CniError> {
    let namespace = namespace::open(path).map_err(failed)?;
    let done = namespace::within(namespace.as_fd(), || work(&mut Routing::open()?)).map_err(failed)?;
    done.map_err(failed)
}

#[cfg(test)]
mod tests {
    use testkit::Host;

    use super::*;
    use crate::testing;

    #[test]
    fn a_container_gets_its_loopback() {
        let host = Host::new("container").unwrap();
        let lo = |up| {
            testing::within(&host, || {
                let mut routing = Routing::open().unwrap();
                let lo = routing.link("lo").unwrap().unwrap();
                routing.change_link(lo.index, &LinkChange { up: Some(up), ..LinkChange::default() }).unwrap();
            });
        };
        let call = |command: &str, config: Value| Call {
            command: command.into(),
            container: "c".into(),
            namespace: host.network().display().to_string(),
            interface: "lo".into(),
            arguments: String::new(),
            config,
        };
        let config = json!({ "cniVersion": "0.3.1", "name": "cni-loopback", "type": "loopback" });
        lo(false);
        let check = json!({ "cniVersion": "1.0.0", "name": "n", "prevResult": {} });
        assert_eq!(answer(&call("CHECK", check.clone())).unwrap_err().code, code::IO);
        let result = answer(&call("ADD", config.clone())).unwrap();
        assert_eq!(result["ips"], json!([{ "address": "127.0.0.1/8", "interface": 0, "version": "4" }]));
        assert_eq!(answer(&call("CHECK", check)).unwrap(), Value::Null);
        assert_eq!(answer(&call("DEL", config.clone())).unwrap(), Value::Null);
        let gone = Call { namespace: "/run/netns/gone".into(), ..call("ADD", config) };
        assert_eq!(answer(&gone).unwrap_err().code, code::IO);
    }
}
