//! Joins containers to the network and takes them out, so that a process that dies at any step leaves what the next one
//! can finish: the record is written first and removed last.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use netlink::Routing;
use objects::Cidr;
use serde_json::Value;

use crate::attachment::{self, Attachment};
use crate::cni::{CniError, Command, Request, add_result, code, same_addresses};
use crate::filter::{self, Filter, Ranges};
use crate::guard::Joined;
use crate::place::Place;
use crate::pod_link::{self, LinkError};
use crate::records::{Key, Records};
use crate::steps::Steps;

/// The facts of a node on which its Pods' network depends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The node's own ranges of Pods' addresses, one of each family at most.
    pub(crate) blocks: Vec<Cidr>,
    /// The ranges that the packet filter must know.
    pub(crate) ranges: Ranges,
    /// The longest packet of a Pod, in bytes.
    pub(crate) mtu: u32,
}

/// The containers of a node.
pub(crate) struct Pods {
    place: Place,
    records: Records,
    filter: Filter,
    facts: Facts,
    steps: Steps,
}

impl Pods {
    /// Reads the records; nothing is changed yet.
    pub(crate) fn open(place: Place, steps: Steps) -> io::Result<Self> {
        let records = Records::open(&place.records())?;
        let filter = Filter::new(place.name(), place.links());
        Ok(Self { place, records, filter, facts: Facts::default(), steps })
    }

    /// Does what a runtime asks.
    pub(crate) fn answer(&mut self, request: &Request) -> Result<Value, CniError> {
        let key = (request.container.clone(), request.interface.clone());
        match request.command {
            Command::Add => self.add(&key, request),
            Command::Del => self.leave_together(&[key]).map(|()| Value::Null),
            Command::Check => self.check(&key, request).map(|()| Value::Null),
            Command::Gc => {
                let keys = self.records.all().map(key_of);
                let gone: Vec<Key> = keys.filter(|key| !request.valid.contains(key)).collect();
                self.leave(&gone).map(|()| Value::Null).map_err(|e| failed("GC", e))
            }
            Command::Status if self.facts.blocks.is_empty() => {
                Err(CniError::new(code::UNAVAILABLE, "the node has no pod CIDR yet"))
            }
            Command::Status => Ok(Value::Null),
        }
    }

    /// Takes new facts; tells what the packet filter refuses.
    pub(crate) fn learn(&mut self, facts: Facts) -> Result<(), netlink::Error> {
        self.facts = facts;
        self.filter.write(self.records.all(), &self.facts.ranges)
    }

    /// Makes all links as the records say, and forgets containers whose network namespace is gone, also if its file's
    /// name is another one's since: nobody tells of them any more.
    pub(crate) fn adopt(&mut self) {
        let all: Vec<Attachment> = self.records.all().cloned().collect();
        for one in &all {
            let done = match pod_link::open(one) {
                Ok(_) => self.make_link(one).map_err(|e| (e, "made")),
                Err(_) => self.leave(&[key_of(one)]).map_err(|e| (e, "removed")),
            };
            if let Err((error, what)) = done {
                tracing::warn!(container = one.container, %error, "a link of the pod network cannot be {what}");
            }
        }
    }

    /// The containers of Pods.
    pub(crate) fn joined(&self) -> Vec<Joined> {
        self.records.all().filter_map(joined).collect()
    }

    /// The container of a Pod that a runtime asks about.
    pub(crate) fn joined_by(&self, request: &Request) -> Option<Joined> {
        self.records.get(&(request.container.clone(), request.interface.clone())).and_then(joined)
    }

    /// Takes out a container that was joined and must not be.
    pub(crate) fn refuse(&mut self, request: &Request) {
        if let Err(error) = self.leave(&[(request.container.clone(), request.interface.clone())]) {
            // The record stays, so the runtime's DEL or the next start tries again.
            tracing::warn!(container = request.container, %error, "a container cannot be taken out of the network");
        }
    }

    fn make_link(&self, one: &Attachment) -> Result<(), LinkError> {
        let alias = format!("{} {} {}", self.place.name(), one.container, one.interface);
        pod_link::ensure(&self.place.link(one.number), one, &alias, &self.steps)
    }

    fn add(&mut self, key: &Key, request: &Request) -> Result<Value, CniError> {
        if self.facts.blocks.is_empty() {
            return Err(CniError::new(code::LATER, "the node has no pod CIDR yet"));
        }
        let one = self.record(key, request)?;
        if let Err(error) = self.join(&one) {
            self.refuse(request);
            return Err(failed("ADD", error));
        }
        Ok(add_result(request.version, &one, &self.place.link(one.number)))
    }

    /// Gives a container its number and addresses, and writes them down. One that asks again keeps them.
    fn record(&mut self, key: &Key, request: &Request) -> Result<Attachment, CniError> {
        let io = |error: io::Error| CniError::because(code::IO, "the attachment cannot be recorded", error);
        let identity = pod_link::identify(&request.namespace).map_err(|e| failed("ADD", e))?;
        let number = match self.records.get(key) {
            Some(old) if old.namespace == request.namespace => old.number,
            Some(_) => {
                self.leave(std::slice::from_ref(key)).map_err(|e| failed("ADD", e))?;
                self.number()?
            }
            None => self.number()?,
        };
        let one = Attachment {
            container: key.0.clone(),
            interface: key.1.clone(),
            pod: request.pod.clone(),
            namespace: request.namespace.clone(),
            identity: Some(identity),
            number,
            addresses: attachment::addresses(&self.facts.blocks, number),
            mtu: self.facts.mtu,
            ports: request.ports.clone(),
            bandwidth: request.bandwidth,
        };
        self.steps.next().map_err(io)?;
        self.records.put(one.clone()).map_err(io)?;
        Ok(one)
    }

    fn number(&self) -> Result<u16, CniError> {
        let greatest = attachment::last_number(&self.facts.blocks);
        let mut routing = Routing::open().map_err(|e| failed("ADD", e.into()))?;
        let mut refused = None;
        // A link without a record is somebody's all the same: the file was lost.
        let number = self.records.free_number(greatest, |n| match routing.link(&self.place.link(n)) {
            Ok(link) => link.is_some(),
            Err(error) => {
                refused = Some(error);
                false
            }
        });
        if let Some(error) = refused {
            return Err(failed("ADD", error.into()));
        }
        number.ok_or_else(|| {
            let blocks: Vec<String> = self.facts.blocks.iter().map(ToString::to_string).collect();
            let msg = format!("no address is free in {}", blocks.join(", "));
            CniError::new(code::LATER, msg)
        })
    }

    fn join(&mut self, one: &Attachment) -> Result<(), LinkError> {
        self.make_link(one)?;
        self.steps.next()?;
        if let Err(error) = self.filter.write(self.records.all(), &self.facts.ranges) {
            // A node without a packet filter has Pods all the same, but no ports that lead to them.
            if !one.ports.is_empty() {
                return Err(error.into());
            }
            tracing::warn!(%error, "the pod network's packet filter is not as it should be");
        }
        self.steps.next()?;
        Ok(filter::forget(std::iter::once(one))?)
    }

    /// Takes containers out, as one DEL of each would.
    pub(crate) fn leave_together(&mut self, keys: &[Key]) -> Result<(), CniError> {
        self.leave(keys).map_err(|e| failed("DEL", e))
    }

    /// Takes containers out, all together: the kernel takes as long for many links as for one. One that is not there is
    /// no error. After an error each that is not out has its record, by which it is tried again.
    fn leave(&mut self, keys: &[Key]) -> Result<(), LinkError> {
        let gone: BTreeMap<&Key, Attachment> =
            keys.iter().filter_map(|key| Some((key, self.records.get(key)?.clone()))).collect();
        if gone.is_empty() {
            return Ok(());
        }
        self.steps.next()?;
        let others = self.records.all().filter(|other| !gone.contains_key(&key_of(other)));
        if let Err(error) = self.filter.write(others, &self.facts.ranges) {
            tracing::warn!(%error, "the pod network's packet filter is not as it should be");
        }
        pod_link::remove(gone.values().map(|one| self.place.link(one.number)), &self.steps)?;
        self.steps.next()?;
        filter::forget(gone.values())?;
        for key in gone.keys() {
            self.steps.next()?;
            self.records.remove(key)?;
        }
        Ok(())
    }

    fn check(&self, key: &Key, request: &Request) -> Result<(), CniError> {
        let unknown = || CniError::new(code::UNKNOWN_CONTAINER, format!("unknown container {}", key.0));
        let one = self.records.get(key).ok_or_else(unknown)?;
        if !request.previous.as_ref().is_some_and(|previous| same_addresses(previous, one)) {
            let addresses: Vec<IpAddr> = one.addresses.iter().map(|own| own.address).collect();
            let msg = format!("prevResult does not have the container's addresses {addresses:?}");
            return Err(CniError::new(code::CONFIGURATION, msg));
        }
        pod_link::check(&self.place.link(one.number), one).map_err(|e| failed("CHECK", e))
    }
}

/// A container as others know it; none if it is of no Pod.
fn joined(one: &Attachment) -> Option<Joined> {
    Some(Joined {
        id: format!("{}@{}", one.container, one.interface),
        pod: one.pod.clone()?,
        addresses: one.addresses.iter().map(|own| own.address).collect(),
    })
}

fn key_of(one: &Attachment) -> Key {
    (one.container.clone(), one.interface.clone())
}

fn failed(command: &str, error: LinkError) -> CniError {
    CniError::because(code::IO, format!("{command} failed"), error)
}

#[cfg(test)]
mod tests;
