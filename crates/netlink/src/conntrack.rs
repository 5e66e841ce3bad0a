//! Tracked connections.

use std::net::{IpAddr, SocketAddr};

use netlink_bindings::conntrack::{ConntrackAttrs, IterableTupleAttrs, Nfgenmsg, Request};
use netlink_bindings::traits::{NetlinkRequest, Protocol};

use crate::Error;
use crate::attributes::{nest, put, put_be32};
use crate::socket::Socket;

/// The number of UDP among the protocols of IP.
pub const UDP: u8 = 17;
/// The number of SCTP.
pub const SCTP: u8 = 132;

/// The ends of a connection as packets of one direction have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Direction {
    /// Where packets come from.
    pub source: SocketAddr,
    /// Where packets go to.
    pub destination: SocketAddr,
}

/// A connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The number of its protocol.
    pub protocol: u8,
    /// The packets of who began it, before addresses are rewritten.
    pub original: Direction,
    /// The packets of the answers, before addresses are rewritten back.
    pub reply: Direction,
    /// The mark of the connection.
    pub mark: u32,
    /// The zone.
    pub zone: u16,
    id: u32,
}

/// The tracked connections of one network namespace: that of the thread that opened it.
pub struct Connections(Socket);

impl Connections {
    /// Opens a socket in the network namespace of this thread.
    pub fn open() -> Result<Self, Error> {
        Socket::open_netfilter().map(Self)
    }

    /// The connections that `wanted` chooses, of protocols with ports.
    pub fn list(&mut self, mut wanted: impl FnMut(&Flow) -> bool) -> Result<Vec<Flow>, Error> {
        let found = std::cell::RefCell::new(Vec::new());
        let request = Request::new().op_get_dump(&Nfgenmsg::new());
        self.0.list(
            "cannot list the tracked connections",
            &request,
            || found.borrow_mut().clear(),
            |(_, attributes)| {
                let original = attributes.get_tuple_orig().ok().and_then(|of| direction(&of));
                let reply = attributes.get_tuple_reply().ok().and_then(|of| direction(&of));
                let (Some((protocol, original)), Some((_, reply))) = (original, reply) else { return };
                let (mut mark, mut zone, mut id) = (0, 0, 0);
                for attribute in attributes.flatten() {
                    match attribute {
                        ConntrackAttrs::Mark(is) => mark = is,
                        ConntrackAttrs::Zone(is) => zone = is,
                        ConntrackAttrs::Id(is) => id = is,
                        _ => {}
                    }
                }
                let flow = Flow { protocol, original, reply, mark, zone, id };
                if wanted(&flow) {
                    found.borrow_mut().push(flow);
                }
            },
        )?;
        Ok(found.into_inner())
    }

    /// Forgets a connection; one that is over already is no error.
    pub fn delete(&mut self, flow: &Flow) -> Result<(), Error> {
        match self.0.call("cannot forget a tracked connection", &Delete::new(flow)) {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(()),
        }
    }

    /// Forgets the connections that `wanted` chooses, and tells how many they were.
    pub fn delete_all(&mut self, wanted: impl FnMut(&Flow) -> bool) -> Result<usize, Error> {
        let flows = self.list(wanted)?;
        for flow in &flows {
            self.delete(flow)?;
        }
        Ok(flows.len())
    }
}

fn direction(tuple: &IterableTupleAttrs<'_>) -> Option<(u8, Direction)> {
    let (ip, protocol) = (tuple.get_tuple_ip().ok()?, tuple.get_tuple_proto().ok()?);
    let source = ip.get_ip_v4_src().map(IpAddr::V4).or_else(|_| ip.get_ip_v6_src().map(IpAddr::V6)).ok()?;
    let destination =
        ip.get_ip_v4_dst().map(IpAddr::V4).or_else(|_| ip.get_ip_v6_dst().map(IpAddr::V6)).ok()?;
    let direction = Direction {
        source: (source, protocol.get_proto_src_port().ok()?).into(),
        destination: (destination, protocol.get_proto_dst_port().ok()?).into(),
    };
    Some((protocol.get_proto_num().ok()?, direction))
}

/// `IPCTNL_MSG_CT_DELETE`, which the bindings do not have.
struct Delete(Vec<u8>);

impl Delete {
    fn new(flow: &Flow) -> Self {
        /// `CTA_TUPLE_ORIG`, `CTA_ID`, `CTA_ZONE`; `CTA_TUPLE_IP`, `CTA_TUPLE_PROTO`; `CTA_PROTO_…`.
        const ORIGINAL: u16 = 1;
        const ID: u16 = 12;
        const ZONE: u16 = 18;
        const IP: u16 = 1;
        const PROTOCOL: u16 = 2;
        let mut header = Nfgenmsg::new();
        header.nfgen_family = if flow.original.source.is_ipv4() { 2 } else { 10 };
        let mut out = header.as_slice().to_vec();
        nest(&mut out, ORIGINAL, |to| {
            nest(to, IP, |to| {
                for (v4, v6, end) in [(1, 3, flow.original.source), (2, 4, flow.original.destination)] {
                    match end.ip() {
                        IpAddr::V4(address) => put(to, v4, &address.octets()),
                        IpAddr::V6(address) => put(to, v6, &address.octets()),
                    }
                }
            });
            nest(to, PROTOCOL, |to| {
                put(to, 1, &[flow.protocol]);
                put(to, 2, &flow.original.source.port().to_be_bytes());
                put(to, 3, &flow.original.destination.port().to_be_bytes());
            });
        });
        put_be32(&mut out, ID, flow.id);
        if flow.zone != 0 {
            put(&mut out, ZONE, &flow.zone.to_be_bytes());
        }
        Self(out)
    }
}

impl NetlinkRequest for Delete {
    type ReplyType<'buf> = ();
    fn protocol(&self) -> Protocol {
        // `NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_DELETE`.
        Protocol::Raw { protonum: 12, request_type: 1 << 8 | 2 }
    }
    fn flags(&self) -> u16 {
        0
    }
    fn payload(&self) -> &[u8] {
        &self.0
    }
    fn decode_reply(_: &[u8]) -> Self::ReplyType<'_> {}
}
