//! Addresses of links.

use std::net::IpAddr;

use netlink_bindings::rt_addr::{Ifaddrmsg, Request};

use crate::{Error, Routing};

/// `IFA_F_NODAD` (0x02): an IPv6 address that may be used at once, since nobody else can have it.
const NO_DUPLICATES: u32 = 2;

/// An address of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// The link's number.
    pub link: u32,
    /// The address.
    pub address: IpAddr,
    /// The length of the prefix of the network that it lies in.
    pub prefix: u8,
}

/// `AF_INET` or `AF_INET6`.
pub(crate) fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 2 } else { 10 }
}

fn header(address: &Address) -> Ifaddrmsg {
    let mut header = Ifaddrmsg::new();
    header.ifa_family = family(address.address);
    header.ifa_prefixlen = address.prefix;
    header.ifa_index = address.link;
    header
}

impl Routing {
    /// The addresses of all links.
    pub fn addresses(&mut self) -> Result<Vec<Address>, Error> {
        let request = Request::new().op_getaddr_dump(&Ifaddrmsg::new());
        let found = std::cell::RefCell::new(Vec::new());
        self.0.list(
            "cannot list the addresses",
            &request,
            || found.borrow_mut().clear(),
            |(header, attributes)| {
                // The own end of a link between two; `address` is the other one's there.
                let Ok(address) = attributes.get_local().or_else(|_| attributes.get_address()) else {
                    return;
                };
                let (link, prefix) = (header.ifa_index, header.ifa_prefixlen);
                found.borrow_mut().push(Address { link, address, prefix });
            },
        )?;
        Ok(found.into_inner())
    }

    /// Gives a link an address; it may have it already.
    pub fn add_address(&mut self, address: &Address) -> Result<(), Error> {
        let mut request = Request::new().set_create().set_replace().op_newaddr_do(&header(address));
        let mut encoder = request.encode().push_local(address.address).push_address(address.address);
        if address.address.is_ipv6() {
            encoder = encoder.push_flags(NO_DUPLICATES);
        }
        drop(encoder);
        self.0.call(&format!("cannot give link {} the address {}", address.link, address.address), &request)
    }

    /// Takes an address from a link; none is no error.
    pub fn delete_address(&mut self, address: &Address) -> Result<(), Error> {
        let mut request = Request::new().op_deladdr_do(&header(address));
        request.encode().push_local(address.address).push_address(address.address);
        let what = format!("cannot take the address {} from link {}", address.address, address.link);
        match self.0.call(&what, &request) {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(()),
        }
    }
}
