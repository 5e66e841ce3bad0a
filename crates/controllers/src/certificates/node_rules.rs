//! The rules by which the certificates of a node are approved that upstream leaves to an administrator.
//!
//! A thief of a node's client certificate can ask for certificates as that node. So the rules give them nothing that
//! reaches further than the node does:
//!
//! - **A serving certificate** is for the node's own name and for addresses that its Node reports. The node itself writes
//!   what its Node reports; therefore no certificate is for a name or an address by which clients know somebody else:
//!   the API server's names and addresses, names within the cluster's domain, `localhost`, the ranges of Services and of
//!   Pods, and what another Node reports too. (All these certificates are signed by one authority, which clients of the
//!   API server trust: a certificate for the API server's address would let a thief take its place.) Such a request is
//!   left to an administrator.
//! - **The certificate of another part of the node** is for one of [`ACCOUNTS`]: users that may read what every node
//!   needs, and write nothing but Events and the Leases of load balancers. It brings no group. It is approved while the Node exists, while RBAC lets nodes
//!   ask (`certificatesigningrequests/nodeaccount`), and for a day at most: a node that is removed keeps it no longer.
//! - A certificate of another node, or of a user with more rights, is never approved here.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use objects::Cidr;

use super::request::Request;
use super::{API_CLIENT, KUBELET_SERVING, rules};

/// The users that a node's parts may act as, besides the node's own: the Service proxy with the pod network, the DNS
/// server, network policies, and load balancers.
pub const ACCOUNTS: [&str; 4] =
    ["system:kube-proxy", "system:node-dns", "system:node-policy", "system:node-balancer"];

/// The longest time for which a certificate of one of the [`ACCOUNTS`] is approved, in seconds.
const LONGEST: i32 = 24 * 60 * 60;

/// The kinds of requests that are judged here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Serving,
    Account,
}

/// The reason for which a request is left to an administrator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Left {
    #[error("{0}")]
    Rule(String),
    #[error("there is no Node {0:?}")]
    NoNode(String),
    #[error("Node {node:?} does not report {asked}")]
    NotReported { node: String, asked: String },
    #[error("{0} is not a node's own")]
    Reserved(String),
    #[error("another Node reports {0}, too")]
    Shared(String),
    #[error("expirationSeconds must be {LONGEST} at most")]
    TooLong,
}

/// The names and addresses of the cluster that are no node's.
#[derive(Debug, Clone, Default)]
pub(super) struct Reserved {
    pub(super) ranges: Vec<Cidr>,
    /// The API server's addresses.
    pub(super) servers: BTreeSet<IpAddr>,
}

/// The addresses that a Node reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Reported {
    pub(super) name: String,
    pub(super) names: BTreeSet<String>,
    pub(super) addresses: BTreeSet<IpAddr>,
}

/// The kind of a request; `None` if it is not judged here. The second part is the node that asks.
pub(super) fn kind<'a>(csr: &'a CertificateSigningRequest, request: &Request) -> Option<(Kind, &'a str)> {
    let node = csr.spec.username.as_deref()?.strip_prefix("system:node:").filter(|n| !n.is_empty())?;
    let groups = csr.spec.groups.as_deref().unwrap_or_default();
    if !groups.iter().any(|g| g == "system:nodes") {
        return None;
    }
    match csr.spec.signer_name.as_str() {
        KUBELET_SERVING => Some((Kind::Serving, node)),
        API_CLIENT if ACCOUNTS.contains(&request.subject.common_name.as_str()) => Some((Kind::Account, node)),
        _ => None,
    }
}

/// Checks a request for a serving certificate by `node`, among all `nodes`.
pub(super) fn serving(
    csr: &CertificateSigningRequest,
    request: &Request,
    node: &str,
    nodes: &[Reported],
    reserved: &Reserved,
) -> Result<(), Left> {
    rules::kubelet_serving(request, rules::usages(csr)).map_err(Left::Rule)?;
    if csr.spec.username.as_deref() != Some(request.subject.common_name.as_str()) {
        return Err(Left::Rule("the subject is another node than the requester".into()));
    }
    if request.has_others || request.subject.uid.is_some() {
        return Err(Left::Rule("names other than DNS names and IP addresses are not allowed".into()));
    }
    let own = own(node, nodes)?;
    let others = || nodes.iter().filter(|other| other.name != node);
    for name in &request.names {
        let low = name.to_ascii_lowercase();
        // A node chooses what it reports; only its own name is nobody else's.
        if low != node || is_reserved(&low) {
            return Err(Left::Reserved(name.clone()));
        }
        if !own.names.contains(&low) {
            return Err(Left::NotReported { node: node.to_owned(), asked: name.clone() });
        }
        if others().any(|other| other.names.contains(&low)) {
            return Err(Left::Shared(name.clone()));
        }
    }
    for address in request.addresses.iter().map(IpAddr::to_canonical) {
        let shown = || address.to_string();
        if !own.addresses.contains(&address) {
            return Err(Left::NotReported { node: node.to_owned(), asked: shown() });
        }
        let single: Option<Cidr> =
            format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 }).parse().ok();
        let nobodys = address.is_loopback() || address.is_unspecified() || address.is_multicast();
        let taken = reserved.servers.contains(&address)
            || reserved.ranges.iter().any(|r| single.is_none_or(|single| r.contains(single)));
        if nobodys || taken {
            return Err(Left::Reserved(shown()));
        }
        if others().any(|other| other.addresses.contains(&address)) {
            return Err(Left::Shared(shown()));
        }
    }
    Ok(())
}

/// Checks a request for a certificate of one of the [`ACCOUNTS`] by `node`.
pub(super) fn account(
    csr: &CertificateSigningRequest,
    request: &Request,
    node: &str,
    nodes: &[Reported],
) -> Result<(), Left> {
    own(node, nodes)?;
    let subject = &request.subject;
    if !subject.organizations.is_empty() || subject.uid.is_some() || request.has_alternative_names() {
        return Err(Left::Rule("the certificate has a user's name and nothing else".into()));
    }
    rules::api_client(rules::usages(csr)).map_err(Left::Rule)?;
    if csr.spec.expiration_seconds.is_none_or(|seconds| seconds > LONGEST) {
        return Err(Left::TooLong);
    }
    Ok(())
}

fn own<'a>(node: &str, nodes: &'a [Reported]) -> Result<&'a Reported, Left> {
    nodes.iter().find(|n| n.name == node).ok_or_else(|| Left::NoNode(node.to_owned()))
}

/// Whether clients know the API server, or something of the cluster, by a name.
fn is_reserved(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    ["localhost", "kubernetes"].contains(&name)
        || name.starts_with("kubernetes.default")
        || name.contains(".svc.")
        || ["svc", "local", "localhost"].contains(&last) && name.contains('.')
        || name.contains('*')
        || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Asks, CLIENT, SERVER};
    use super::*;

    fn nodes() -> Vec<Reported> {
        let node = |name: &str, names: &[&str], addresses: &[&str]| Reported {
            name: name.to_owned(),
            names: names.iter().map(|n| (*n).to_owned()).collect(),
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        };
        let evil =
            ["192.0.2.1", "127.0.0.1", "10.96.0.1", "10.244.1.5", "192.0.2.9", "192.0.2.2", "2001:db8::1"];
        vec![
            node("n", &["n", "kubernetes", "other.example"], &evil),
            node("m", &["m"], &["192.0.2.2"]),
            node("localhost", &["localhost"], &["192.0.2.3"]),
        ]
    }

    fn reserved() -> Reserved {
        Reserved {
            ranges: vec!["10.96.0.0/16".parse().unwrap(), "10.244.0.0/16".parse().unwrap()],
            servers: BTreeSet::from(["192.0.2.9".parse().unwrap()]),
        }
    }

    fn judged(asks: &Asks, nodes: &[Reported]) -> Option<Result<(), Left>> {
        let csr = asks.object();
        let request = Request::parse(&csr.spec.request.0).unwrap();
        let (kind, node) = kind(&csr, &request)?;
        Some(match kind {
            Kind::Serving => serving(&csr, &request, node, nodes, &reserved()),
            Kind::Account => account(&csr, &request, node, nodes),
        })
    }

    fn serving_of(name: &'static str) -> Asks {
        Asks {
            signer: KUBELET_SERVING,
            usages: SERVER,
            names: &["n"],
            addresses: &["192.0.2.1"],
            ..Asks::node(name)
        }
    }

    #[test]
    fn a_node_serves_with_its_own_name_and_addresses() {
        let check = |asks: Asks, expected: Option<Result<(), &str>>| {
            let got = judged(&asks, &nodes()).map(|r| r.map_err(|left| left.to_string()));
            assert_eq!(got, expected.map(|r| r.map_err(str::to_owned)), "{asks:?}");
        };
        let good = serving_of("n");
        check(good, Some(Ok(())));
        check(Asks { names: &[], ..good }, Some(Ok(())));
        check(Asks { addresses: &["2001:db8::1"], ..good }, Some(Ok(())));
        check(Asks { addresses: &["::ffff:192.0.2.1"], ..good }, Some(Ok(())));
        // Others ask, or for others.
        check(Asks { requester: "ann", ..good }, None);
        check(Asks { groups: &["system:authenticated"], ..good }, None);
        check(Asks { requester: "system:node:", ..good }, None);
        check(
            Asks { requester: "system:node:m", ..good },
            Some(Err("the subject is another node than the requester")),
        );
        check(Asks { organization: None, ..good }, Some(Err("subject organization is not system:nodes")));
        check(
            Asks { usages: CLIENT, ..good },
            Some(Err("usages did not match [digital signature key encipherment server auth]")),
        );
        check(Asks { uris: &["spiffe://x"], ..good }, Some(Err("URI subjectAltNames are not allowed")));
        check(Asks { emails: &["a@b"], ..good }, Some(Err("Email subjectAltNames are not allowed")));
        // The node reports what is not its own.
        for name in [&["kubernetes"][..], &["other.example"], &["m"]] {
            check(Asks { names: name, ..good }, Some(Err(&format!("{} is not a node's own", name[0]))));
        }
        for address in [&["127.0.0.1"][..], &["10.96.0.1"], &["10.244.1.5"], &["192.0.2.9"]] {
            check(
                Asks { addresses: address, ..good },
                Some(Err(&format!("{} is not a node's own", address[0]))),
            );
        }
        check(Asks { addresses: &["192.0.2.2"], ..good }, Some(Err("another Node reports 192.0.2.2, too")));
        check(
            Asks { addresses: &["192.0.2.77"], ..good },
            Some(Err("Node \"n\" does not report 192.0.2.77")),
        );
        let gone = judged(&good, &[]).unwrap().unwrap_err();
        assert_eq!(gone, Left::NoNode("n".to_owned()));
    }

    #[test]
    fn names_of_the_cluster_are_no_nodes() {
        for name in [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "a.b.svc",
            "cluster.local",
            "kubernetes.default.svc.cluster.local",
            "a.svc.other.domain",
            "*.example.com",
            "192.0.2.1",
            "x.localhost",
        ] {
            assert!(is_reserved(name), "{name}");
        }
        for name in ["n", "node-1", "node-1.example.com", "kubernetes-node", "svc", "local"] {
            assert!(!is_reserved(name), "{name}");
        }
    }

    #[test]
    fn a_nodes_parts_have_users_of_their_own() {
        let check = |asks: Asks, expected: Option<Result<(), &str>>| {
            let got = judged(&asks, &nodes()).map(|r| r.map_err(|left| left.to_string()));
            assert_eq!(got, expected.map(|r| r.map_err(str::to_owned)), "{asks:?}");
        };
        let only = Some(Err("the certificate has a user's name and nothing else"));
        let good = Asks {
            signer: API_CLIENT,
            common_name: "system:kube-proxy",
            organization: None,
            seconds: Some(86400),
            ..Asks::node("n")
        };
        check(good, Some(Ok(())));
        check(Asks { common_name: "system:node-dns", ..good }, Some(Ok(())));
        check(Asks { seconds: None, ..good }, Some(Err("expirationSeconds must be 86400 at most")));
        check(Asks { seconds: Some(86401), ..good }, Some(Err("expirationSeconds must be 86400 at most")));
        check(Asks { organization: Some("system:masters"), ..good }, only);
        check(Asks { organization: Some("system:nodes"), ..good }, only);
        check(Asks { names: &["n"], ..good }, only);
        check(Asks { uid: Some("u"), ..good }, only);
        check(
            Asks { usages: SERVER, ..good },
            Some(Err("invalid usage for client certificate: server auth")),
        );
        for name in [
            "system:admin",
            "kubernetes-admin",
            "system:kube-controller-manager",
            "system:node:m",
            "system:node:n",
        ] {
            check(Asks { common_name: name, ..good }, None);
        }
        check(Asks { requester: "system:bootstrap:abcdef", groups: &["system:bootstrappers"], ..good }, None);
        check(Asks { requester: "system:node:gone", ..good }, Some(Err("there is no Node \"gone\"")));
    }
}
