//! Others who must agree before a container of a Pod is in the network.

use std::fmt::Debug;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// A Pod as the runtime names it to plugins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid, "" if the runtime does not tell.
    #[serde(default)]
    pub uid: String,
}

impl PodName {
    /// Reads `CNI_ARGS`; none if they name no Pod.
    pub(crate) fn read(arguments: &str) -> Option<Self> {
        let value = |name: &str| {
            let pairs = arguments.split(';').filter_map(|pair| pair.split_once('='));
            pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).next_back()
        };
        let (namespace, name) = (value("K8S_POD_NAMESPACE")?, value("K8S_POD_NAME")?);
        let uid = value("K8S_POD_UID").unwrap_or_default();
        (!namespace.is_empty() && !name.is_empty()).then_some(Self { namespace, name, uid })
    }
}

/// A container of a Pod that is joined to the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// The name that no other one has: that of the container with that of the link inside.
    pub id: String,
    /// Its Pod.
    pub pod: PodName,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// Someone who must agree. Calls come from threads that may block.
pub trait Guard: Debug + Send + Sync {
    /// These containers were in the network before; called once, before any other.
    fn adopt(&self, all: Vec<Joined>);
    /// A container has its addresses and a link, and nothing runs in it yet. It may block, for some seconds.
    ///
    /// # Errors
    /// With the reason for which the container must not be in the network; it is taken out, and nobody is told of it.
    fn admit(&self, one: Joined) -> Result<(), String>;
    /// A container is gone; it may never have been there.
    fn release(&self, id: &str);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_runtimes() {
        let check = |arguments: &str, expected: Option<(&str, &str, &str)>| {
            let found = PodName::read(arguments);
            let found = found.as_ref().map(|p| (p.namespace.as_str(), p.name.as_str(), p.uid.as_str()));
            assert_eq!(found, expected, "{arguments}");
        };
        let whole =
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=n;K8S_POD_NAME=p;K8S_POD_INFRA_CONTAINER_ID=c;K8S_POD_UID=u";
        check(whole, Some(("n", "p", "u")));
        check("K8S_POD_NAME=p;K8S_POD_NAMESPACE=n", Some(("n", "p", "")));
        check("K8S_POD_NAMESPACE=n;K8S_POD_NAME=", None);
        check("K8S_POD_NAMESPACE=n", None);
        check("", None);
        check(";;=;x", None);
    }
}
