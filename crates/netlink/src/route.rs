//! Routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_bindings::rt_route::{Request, Rtmsg};

use crate::address::family;
use crate::{Error, Routing};

/// `RT_TABLE_MAIN`.
const MAIN: u8 = 254;
/// `RT_TABLE_LOCAL`.
const LOCAL_TABLE: u8 = 255;
/// `RTN_UNICAST`.
const UNICAST: u8 = 1;
/// `RTN_LOCAL`.
const LOCAL: u8 = 2;
/// `RT_SCOPE_HOST`.
const HOST: u8 = 254;
/// The number of `lo` in every network namespace.
const LOOPBACK: u32 = 1;
/// `RTNH_F_ONLINK`: the gateway is on the link, though no route says so.
const ON_LINK: u32 = 4;

/// How far a destination is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Behind a gateway.
    Universe,
    /// On the link.
    Link,
}

/// A route of the main table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The network.
    pub destination: IpAddr,
    /// The length of its prefix.
    pub prefix: u8,
    /// The number of the link by which packets leave; 0 if the gateway tells.
    pub link: u32,
    /// The gateway, if there is one.
    pub gateway: Option<IpAddr>,
    /// The address that packets of this machine have.
    pub source: Option<IpAddr>,
    /// How far it is.
    pub scope: Scope,
    /// Whether the gateway is on the link though no route says so.
    pub on_link: bool,
    /// A number for who made the route (`RTPROT_…`).
    pub protocol: u8,
    /// The longest packet, in bytes; 0 for the link's.
    pub mtu: u32,
    /// The route with the least number is taken; 0 for the kernel's default.
    pub metric: u32,
}

impl Route {
    /// A route to a destination on a link.
    pub fn on(link: u32, destination: IpAddr, prefix: u8) -> Self {
        Self {
            destination,
            prefix,
            link,
            gateway: None,
            source: None,
            scope: Scope::Link,
            on_link: false,
            protocol: 0,
            mtu: 0,
            metric: 0,
        }
    }
    /// A route to a destination behind a gateway.
    pub fn via(gateway: IpAddr, link: u32, destination: IpAddr, prefix: u8) -> Self {
        Self { gateway: Some(gateway), scope: Scope::Universe, ..Self::on(link, destination, prefix) }
    }
}

/// A route of the local table: packets to its network are this machine's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalRoute {
    /// The network.
    pub destination: IpAddr,
    /// The length of its prefix.
    pub prefix: u8,
    /// A number for who made the route (`RTPROT_…`).
    pub protocol: u8,
    /// A number that tells routes of one maker apart.
    pub metric: u32,
}

fn header(route: &Route) -> Rtmsg {
    let mut header = Rtmsg::new();
    header.rtm_family = family(route.destination);
    header.rtm_dst_len = route.prefix;
    header.rtm_table = MAIN;
    header.rtm_protocol = route.protocol;
    header.rtm_scope = if route.scope == Scope::Link { 253 } else { 0 };
    header.rtm_type = UNICAST;
    header.rtm_flags = if route.on_link { ON_LINK } else { 0 };
    header
}

impl LocalRoute {
    /// The fields that both kinds of routes have.
    fn as_route(&self) -> Route {
        Route { metric: self.metric, ..Route::on(LOOPBACK, self.destination, self.prefix) }
    }
}

fn local_header(route: &LocalRoute) -> Rtmsg {
    let mut header = Rtmsg::new();
    header.rtm_family = family(route.destination);
    header.rtm_dst_len = route.prefix;
    header.rtm_table = LOCAL_TABLE;
    header.rtm_protocol = route.protocol;
    header.rtm_scope = HOST;
    header.rtm_type = LOCAL;
    header
}

impl Routing {
    /// The routes of the local table, of both families.
    pub fn local_routes(&mut self) -> Result<Vec<LocalRoute>, Error> {
        let found = std::cell::RefCell::new(Vec::new());
        for family in [2, 10] {
            let mut wanted = Rtmsg::new();
            wanted.rtm_family = family;
            let before = found.borrow().len();
            self.0.list(
                "cannot list the local routes",
                &Request::new().op_getroute_dump(&wanted),
                || found.borrow_mut().truncate(before),
                |(header, attributes)| {
                    let Ok(destination) = attributes.get_dst() else { return };
                    if header.rtm_table == LOCAL_TABLE && header.rtm_type == LOCAL {
                        found.borrow_mut().push(LocalRoute {
                            destination,
                            prefix: header.rtm_dst_len,
                            protocol: header.rtm_protocol,
                            metric: attributes.get_priority().unwrap_or_default(),
                        });
                    }
                },
            )?;
        }
        Ok(found.into_inner())
    }

    /// Makes a route of the local table; it may be there.
    pub fn add_local_route(&mut self, route: &LocalRoute) -> Result<(), Error> {
        let mut request = Request::new().set_create().set_replace().op_newroute_do(&local_header(route));
        encode(&mut request.encode(), &route.as_route());
        let what = format!("cannot make {}/{} this machine's own", route.destination, route.prefix);
        self.0.call(&what, &request)
    }

    /// Removes a route of the local table; none is no error.
    pub fn delete_local_route(&mut self, route: &LocalRoute) -> Result<(), Error> {
        let mut request = Request::new().op_delroute_do(&local_header(route));
        encode(&mut request.encode(), &route.as_route());
        let what = format!("cannot make {}/{} no longer this machine's own", route.destination, route.prefix);
        match self.0.call(&what, &request) {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(()),
        }
    }

    /// The routes of the main table, of both families.
    pub fn routes(&mut self) -> Result<Vec<Route>, Error> {
        let found = std::cell::RefCell::new(Vec::new());
        for (family, any) in
            [(2, IpAddr::from(Ipv4Addr::UNSPECIFIED)), (10, IpAddr::from(Ipv6Addr::UNSPECIFIED))]
        {
            let mut wanted = Rtmsg::new();
            wanted.rtm_family = family;
            let before = found.borrow().len();
            self.0.list(
                "cannot list the routes",
                &Request::new().op_getroute_dump(&wanted),
                || found.borrow_mut().truncate(before),
                |(header, attributes)| {
                    if header.rtm_table != MAIN || header.rtm_type != UNICAST {
                        return;
                    }
                    found.borrow_mut().push(Route {
                        destination: attributes.get_dst().unwrap_or(any),
                        prefix: header.rtm_dst_len,
                        link: attributes.get_oif().unwrap_or_default(),
                        gateway: attributes.get_gateway().ok(),
                        source: attributes.get_prefsrc().ok(),
                        scope: if header.rtm_scope == 253 { Scope::Link } else { Scope::Universe },
                        on_link: header.rtm_flags & ON_LINK != 0,
                        protocol: header.rtm_protocol,
                        mtu: attributes.get_metrics().and_then(|all| all.get_mtu()).unwrap_or_default(),
                        metric: attributes.get_priority().unwrap_or_default(),
                    });
                },
            )?;
        }
        Ok(found.into_inner())
    }

    /// Makes a route, in place of one to the same network with the same metric.
    pub fn replace_route(&mut self, route: &Route) -> Result<(), Error> {
        let mut request = Request::new().set_create().set_replace().op_newroute_do(&header(route));
        encode(&mut request.encode(), route);
        let what = format!("cannot make the route to {}/{}", route.destination, route.prefix);
        self.0.call(&what, &request)
    }

    /// Removes a route; none is no error.
    pub fn delete_route(&mut self, route: &Route) -> Result<(), Error> {
        let mut request = Request::new().op_delroute_do(&header(route));
        encode(&mut request.encode(), route);
        let what = format!("cannot remove the route to {}/{}", route.destination, route.prefix);
        match self.0.call(&what, &request) {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(()),
        }
    }
}

fn encode<T: netlink_bindings::traits::Pusher>(
    to: &mut netlink_bindings::rt_route::PushRouteAttrs<T>,
    route: &Route,
) {
    use crate::attributes::{nest, put};
    /// `RTA_…`
    const DST: u16 = 1;
    const OIF: u16 = 4;
    const GATEWAY: u16 = 5;
    const PRIORITY: u16 = 6;
    const PREFSRC: u16 = 7;
    const METRICS: u16 = 8;
    /// `RTAX_MTU`
    const MTU: u16 = 2;
    let bytes = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    if route.prefix > 0 {
        put(to, DST, &bytes(route.destination));
    }
    if route.link != 0 {
        put(to, OIF, &route.link.to_ne_bytes());
    }
    if let Some(gateway) = route.gateway {
        put(to, GATEWAY, &bytes(gateway));
    }
    if let Some(source) = route.source {
        put(to, PREFSRC, &bytes(source));
    }
    if route.metric != 0 {
        put(to, PRIORITY, &route.metric.to_ne_bytes());
    }
    if route.mtu != 0 {
        nest(to, METRICS, |to| put(to, MTU, &route.mtu.to_ne_bytes()));
    }
}
