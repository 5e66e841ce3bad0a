//! Links: network interfaces.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_bindings::rt_link::{Ifinfomsg, PushLinkAttrs, Request};
use netlink_bindings::traits::Pusher;

use crate::attributes::{nest, put};
use crate::{Error, Routing};

/// `IFF_UP`.
const UP: u32 = 1;
/// `IFLA_LINKINFO`, `IFLA_INFO_KIND`, `IFLA_INFO_DATA`.
const INFO: u16 = 18;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
/// `VETH_INFO_PEER`.
const VETH_PEER: u16 = 1;
/// `IFLA_VXLAN_…`.
const VXLAN_ID: u16 = 1;
const VXLAN_LINK: u16 = 3;
const VXLAN_LOCAL: u16 = 4;
const VXLAN_LEARNING: u16 = 7;
const VXLAN_PORT: u16 = 15;
const VXLAN_LOCAL6: u16 = 17;
/// The first of the groups into which links come that are removed together.
const OWN_GROUPS: u32 = 0x666b_0000;

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its number in its network namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its kind (`veth`, `bridge`, `vxlan`); empty for hardware.
    pub kind: String,
    /// Whether it is up.
    pub up: bool,
    /// The longest packet, in bytes.
    pub mtu: u32,
    /// Its hardware address; six bytes, or none.
    pub address: Vec<u8>,
    /// The bridge that it belongs to.
    pub master: Option<u32>,
    /// The number of the interface that it lies on or that is its other end, there where that one is.
    pub below: Option<u32>,
    /// The text that somebody gave it.
    pub alias: String,
    /// The number of its group; 0 unless somebody put it into another one.
    pub group: u32,
}

/// Changes of a link; what is `None` stays.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinkChange<'a> {
    /// Whether it is up.
    pub up: Option<bool>,
    /// Its name, for a link that is down.
    pub name: Option<&'a str>,
    /// The longest packet, in bytes.
    pub mtu: Option<u32>,
    /// Its hardware address.
    pub address: Option<[u8; 6]>,
    /// A text of 255 bytes at most.
    pub alias: Option<&'a str>,
    /// The network namespace to which it moves.
    pub namespace: Option<BorrowedFd<'a>>,
    /// The bridge to which it belongs; 0 for none.
    pub master: Option<u32>,
    /// The number of its group.
    pub group: Option<u32>,
}

/// A VXLAN device whose remote ends are told by forwarding entries, not learnt.
#[derive(Debug, Clone, Copy)]
pub struct Vxlan<'a> {
    /// Its name.
    pub name: &'a str,
    /// The number of the network.
    pub id: u32,
    /// The UDP port.
    pub port: u16,
    /// The address of this machine that packets have.
    pub local: IpAddr,
    /// The interface by which packets leave, or 0.
    pub link: u32,
    /// Its hardware address.
    pub address: [u8; 6],
    /// The longest packet inside, in bytes.
    pub mtu: u32,
}

fn header(index: u32) -> Ifinfomsg {
    let mut header = Ifinfomsg::new();
    header.ifi_index = index.cast_signed();
    header
}

fn change<T: Pusher>(mut to: PushLinkAttrs<T>, change: &LinkChange<'_>) {
    if let Some(name) = change.name {
        to = to.push_ifname_bytes(name.as_bytes());
    }
    if let Some(mtu) = change.mtu {
        to = to.push_mtu(mtu);
    }
    if let Some(address) = &change.address {
        to = to.push_address(address);
    }
    if let Some(alias) = change.alias {
        to = to.push_ifalias_bytes(alias.as_bytes());
    }
    if let Some(namespace) = change.namespace {
        to = to.push_net_ns_fd(namespace.as_raw_fd() as u32);
    }
    if let Some(master) = change.master {
        to = to.push_master(master);
    }
    if let Some(group) = change.group {
        to = to.push_group(group);
    }
    to.end_nested();
}

fn text(of: Result<&CStr, netlink_bindings::utils::ErrorContext>) -> String {
    of.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

impl Routing {
    /// All links.
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        let request = Request::new().op_getlink_dump(&Ifinfomsg::new());
        let links = std::cell::RefCell::new(Vec::new());
        self.0.list(
            "cannot list the links",
            &request,
            || links.borrow_mut().clear(),
            |(header, attributes)| links.borrow_mut().push(read(&header, &attributes)),
        )?;
        Ok(links.into_inner())
    }

    /// The link with this name, if there is one.
    pub fn link(&mut self, name: &str) -> Result<Option<Link>, Error> {
        let mut request = Request::new().op_getlink_do(&Ifinfomsg::new());
        request.encode().push_ifname_bytes(name.as_bytes());
        self.one_link(&format!("cannot read link {name}"), &request)
    }

    /// The link with this number, if there is one.
    pub fn link_by_index(&mut self, index: u32) -> Result<Option<Link>, Error> {
        let request = Request::new().op_getlink_do(&header(index));
        self.one_link(&format!("cannot read link {index}"), &request)
    }

    fn one_link(
        &mut self,
        what: &str,
        request: &netlink_bindings::rt_link::OpGetlinkDo<'_>,
    ) -> Result<Option<Link>, Error> {
        let mut found = None;
        match self.0.each(what, request, |(header, attributes)| found = Some(read(&header, &attributes))) {
            Ok(()) => Ok(found),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a pair of links that are each other's ends. The second is down whatever `inside` says: the kernel cannot
    /// bring it up before there is a first.
    pub fn add_veth(
        &mut self,
        name: &str,
        outside: &LinkChange<'_>,
        peer: &str,
        inside: &LinkChange<'_>,
    ) -> Result<(), Error> {
        let mut header = header(0);
        set_up(&mut header, outside.up);
        let mut request = Request::new().set_create().set_excl().op_newlink_do(&header);
        change(request.encode(), &LinkChange { name: Some(name), ..*outside });
        let far = self::header(0);
        let mut encoder = request.encode();
        nest(&mut encoder, INFO, |to| {
            put(to, INFO_KIND, b"veth\0");
            nest(to, INFO_DATA, |to| {
                nest(to, VETH_PEER, |to| {
                    to.as_vec_mut().extend_from_slice(far.as_slice());
                    let mut attributes = Vec::new();
                    change(PushLinkAttrs::new(&mut attributes), &LinkChange { name: Some(peer), ..*inside });
                    to.as_vec_mut().extend_from_slice(&attributes);
                });
            });
        });
        drop(encoder);
        self.0.call(&format!("cannot make the links {name} and {peer}"), &request)
    }

    /// Makes a VXLAN device.
    pub fn add_vxlan(&mut self, vxlan: &Vxlan<'_>) -> Result<(), Error> {
        let mut header = header(0);
        set_up(&mut header, Some(true));
        let mut request = Request::new().set_create().set_excl().op_newlink_do(&header);
        let wanted = LinkChange {
            name: Some(vxlan.name),
            mtu: Some(vxlan.mtu),
            address: Some(vxlan.address),
            ..LinkChange::default()
        };
        change(request.encode(), &wanted);
        let mut encoder = request.encode();
        nest(&mut encoder, INFO, |to| {
            put(to, INFO_KIND, b"vxlan\0");
            nest(to, INFO_DATA, |to| {
                put(to, VXLAN_ID, &vxlan.id.to_ne_bytes());
                match vxlan.local {
                    IpAddr::V4(local) => put(to, VXLAN_LOCAL, &local.octets()),
                    IpAddr::V6(local) => put(to, VXLAN_LOCAL6, &local.octets()),
                }
                if vxlan.link != 0 {
                    put(to, VXLAN_LINK, &vxlan.link.to_ne_bytes());
                }
                put(to, VXLAN_LEARNING, &[0]);
                put(to, VXLAN_PORT, &vxlan.port.to_be_bytes());
            });
        });
        drop(encoder);
        self.0.call(&format!("cannot make the VXLAN device {}", vxlan.name), &request)
    }

    /// Makes a bridge.
    pub fn add_bridge(&mut self, name: &str, wanted: &LinkChange<'_>) -> Result<(), Error> {
        let mut header = header(0);
        set_up(&mut header, wanted.up);
        let mut request = Request::new().set_create().set_excl().op_newlink_do(&header);
        change(request.encode(), &LinkChange { name: Some(name), ..*wanted });
        request.encode().nested_linkinfo().push_kind(c"bridge");
        self.0.call(&format!("cannot make the bridge {name}"), &request)
    }

    /// Changes a link.
    pub fn change_link(&mut self, index: u32, wanted: &LinkChange<'_>) -> Result<(), Error> {
        let mut header = header(index);
        set_up(&mut header, wanted.up);
        let mut request = Request::new().op_newlink_do(&header);
        change(request.encode(), wanted);
        self.0.call(&format!("cannot change link {index}"), &request)
    }

    /// Removes a link, and its other end if it has one; none is no error.
    pub fn delete_link(&mut self, index: u32) -> Result<(), Error> {
        let request = Request::new().op_dellink_do(&header(index));
        match self.0.call(&format!("cannot remove link {index}"), &request) {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes links, and the other ends of those that have one; any that is not there is no error.
    ///
    /// For each removal the kernel waits until no processor can see the link, some 20 ms; that is as long for many. So
    /// they become a group that nobody else has, which goes at once.
    pub fn delete_links(&mut self, indexes: &[u32]) -> Result<(), Error> {
        if let &[index] = indexes {
            return self.delete_link(index);
        }
        let taken: BTreeSet<u32> = self.links()?.iter().map(|link| link.group).collect();
        let Some(group) = (OWN_GROUPS..=u32::MAX).find(|group| !taken.contains(group)) else {
            return indexes.iter().try_for_each(|index| self.delete_link(*index));
        };
        let mut any = false;
        for index in indexes {
            match self.change_link(*index, &LinkChange { group: Some(group), ..LinkChange::default() }) {
                Ok(()) => any = true,
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(error),
            }
        }
        if !any {
            return Ok(());
        }
        let mut request = Request::new().op_dellink_do(&header(0));
        change(request.encode(), &LinkChange { group: Some(group), ..LinkChange::default() });
        match self.0.call("cannot remove a group of links", &request) {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(()),
        }
    }
}

fn set_up(header: &mut Ifinfomsg, up: Option<bool>) {
    if let Some(up) = up {
        header.ifi_flags = if up { UP } else { 0 };
        header.ifi_change = UP;
    }
}

fn read(header: &Ifinfomsg, attributes: &netlink_bindings::rt_link::IterableLinkAttrs<'_>) -> Link {
    Link {
        index: header.ifi_index.cast_unsigned(),
        name: text(attributes.get_ifname()),
        kind: attributes.get_linkinfo().map(|info| text(info.get_kind())).unwrap_or_default(),
        up: header.ifi_flags & UP != 0,
        mtu: attributes.get_mtu().unwrap_or_default(),
        address: attributes.get_address().map(<[u8]>::to_vec).unwrap_or_default(),
        master: attributes.get_master().ok(),
        below: attributes.get_link().ok(),
        alias: text(attributes.get_ifalias()),
        group: attributes.get_group().unwrap_or_default(),
    }
}
