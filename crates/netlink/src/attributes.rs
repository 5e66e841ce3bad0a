//! Attributes that the bindings have no words for.

use netlink_bindings::traits::Pusher;
use netlink_bindings::utils::{finalize_nested_header, push_header, push_nested_header};

/// Writes an attribute.
pub(crate) fn put(to: &mut impl Pusher, kind: u16, value: &[u8]) {
    let to = to.as_vec_mut();
    push_header(to, kind, value.len() as u16);
    to.extend_from_slice(value);
}

/// Writes a number in network byte order, as nftables and conntrack have them.
pub(crate) fn put_be32(to: &mut impl Pusher, kind: u16, value: u32) {
    put(to, kind, &value.to_be_bytes());
}

/// Writes a string with the zero at its end.
pub(crate) fn put_text(to: &mut impl Pusher, kind: u16, text: &str) {
    let to = to.as_vec_mut();
    push_header(to, kind, text.len() as u16 + 1);
    to.extend_from_slice(text.as_bytes());
    to.push(0);
}

/// Writes an attribute that holds others.
pub(crate) fn nest<T: Pusher>(to: &mut T, kind: u16, inside: impl FnOnce(&mut T)) {
    let offset = push_nested_header(to.as_vec_mut(), kind);
    inside(to);
    finalize_nested_header(to.as_vec_mut(), offset);
}
