//! Values of libraries, whose inside only functions know.

use std::net::IpAddr;

use api::quantity::Quantity;

use crate::access::{Decision, ResourceCheck, Subject};

/// A value of a library.
#[derive(Debug, Clone)]
pub enum Opaque {
    /// A quantity.
    Quantity(Quantity),
    /// An address.
    Ip(IpAddr),
    /// A network.
    Cidr(Cidr),
    /// A URL.
    Url(Url),
    /// A semantic version.
    Semver(Semver),
    /// A named format.
    Format(&'static NamedFormat),
    /// The authorizer, for a user.
    Authorizer(Subject),
    /// A path that may be asked about.
    PathCheck(Subject, String),
    /// An API group that may be asked about.
    GroupCheck(Subject, String),
    /// A resource that may be asked about.
    ResourceCheck(Box<ResourceCheck>),
    /// An answer of the authorizer.
    Decision(Box<Decision>),
}

impl Opaque {
    /// The name of the value's type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Self::PathCheck(..) => "kubernetes.authorization.PathCheck",
            Self::GroupCheck(..) => "kubernetes.authorization.GroupCheck",
            Self::ResourceCheck(_) => "kubernetes.authorization.ResourceCheck",
            Self::Decision(_) => "kubernetes.authorization.Decision",
        }
    }
    /// The size that costs are counted by; `None` for what has none.
    pub(crate) fn size(&self) -> Option<usize> {
        let of = |ip: &IpAddr| if ip.is_ipv4() { 4 } else { 16 };
        match self {
            Self::Ip(ip) => Some(of(ip)),
            Self::Cidr(c) => Some(usize::from(c.bits).div_ceil(8)),
            _ => None,
        }
    }
}

/// A network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    /// The address as it was written, bits of the host included.
    pub address: IpAddr,
    /// The number of bits of the network.
    pub bits: u8,
}

/// A URL as Go's package takes it apart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Url {
    /// In lower case.
    pub scheme: String,
    /// `user:password` as it was written, if there is one.
    pub user: Option<String>,
    /// Host and port.
    pub host: String,
    /// Without escapes.
    pub path: String,
    /// The path as it was written, where it says something that `path` does not.
    pub raw_path: String,
    /// The query as it was written.
    pub query: String,
    /// What stands behind `#`.
    pub fragment: String,
    /// Whether a question mark is there without a query.
    pub empty_query: bool,
}

/// A semantic version.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Semver {
    /// The first number.
    pub major: u64,
    /// The second number.
    pub minor: u64,
    /// The third number.
    pub patch: u64,
    /// What stands behind `-`, between points.
    pub pre: Vec<String>,
    /// What stands behind `+`, between points.
    pub build: Vec<String>,
}

/// A format that texts may have.
#[derive(Debug)]
pub struct NamedFormat {
    /// The name in expressions.
    pub function: &'static str,
    /// The name.
    pub name: &'static str,
    /// The complaints about a text.
    pub check: fn(&str) -> Vec<String>,
    /// The greatest size of the regular expression that upstream's check takes, for costs.
    pub regex_size: usize,
}
