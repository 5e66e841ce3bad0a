//! Changes of a table that are made together.

use std::borrow::Cow;

use netlink_bindings::nftables::{Nfgenmsg, Request, SetElemFlags, SetFlags};
use netlink_bindings::traits::NetlinkRequest;

use super::expression::{put_value, put_verdict};
use super::{Expression, Table, Value};
use crate::attributes::{nest, put, put_be32};
use crate::socket::message;

/// The number of nftables among the subsystems of netfilter.
const NFTABLES: u16 = 10;
/// `NFTA_RULE_EXPRESSIONS`, `NFTA_RULE_USERDATA`.
const RULE_EXPRESSIONS: u16 = 4;
const RULE_NOTE: u16 = 7;
/// `NFTA_CHAIN_USERDATA`, `NFTA_SET_USERDATA`.
const CHAIN_NOTE: u16 = 12;
const SET_NOTE: u16 = 13;
/// `NFTA_SET_TIMEOUT`, which the bindings (0.3.5) write in this machine's order.
const SET_TIMEOUT: u16 = 11;
/// `NFTA_SET_ELEM_LIST_ELEMENTS`, `NFTA_LIST_ELEM`, `NFTA_SET_ELEM_…`.
const ELEMENTS: u16 = 3;
const ELEMENT: u16 = 1;
const ELEMENT_KEY: u16 = 1;
const ELEMENT_DATA: u16 = 2;
const ELEMENT_FLAGS: u16 = 3;
const ELEMENT_END: u16 = 10;
/// An attribute is no longer than 64 KiB, and an element no longer than this.
const LONGEST_LIST: usize = 60 << 10;

/// Where a base chain sees packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hook {
    /// As they come.
    Prerouting,
    /// As they are given to this machine.
    Input,
    /// As they are passed on.
    Forward,
    /// As this machine sends them.
    Output,
    /// As they leave.
    Postrouting,
    /// As a device gets them (tables of [`super::Family::Netdev`]).
    Ingress,
}

impl Hook {
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Prerouting | Self::Ingress => 0,
            Self::Input => 1,
            Self::Forward => 2,
            Self::Output => 3,
            Self::Postrouting => 4,
        }
    }
}

/// The work of a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It lets packets pass or not.
    Filter,
    /// It rewrites addresses of new connections.
    Nat,
    /// It looks for another route if the packet was changed.
    Route,
}

impl Kind {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Filter => b"filter",
            Self::Nat => b"nat",
            Self::Route => b"route",
        }
    }
}

/// A field of a key or value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field {
    /// An IPv4 address.
    Address4,
    /// An IPv6 address.
    Address6,
    /// The number of a protocol.
    Protocol,
    /// A port.
    Port,
    /// A mark: four bytes of this machine's order.
    Mark,
    /// A number: four bytes of this machine's order, as [`super::Expression::Random`] writes them.
    Number,
    /// The name of an interface, filled up to 16 bytes.
    Name,
}

impl Field {
    /// Its length in bytes.
    fn length(self) -> u32 {
        match self {
            Self::Address4 | Self::Mark | Self::Number => 4,
            Self::Address6 | Self::Name => 16,
            Self::Protocol => 1,
            Self::Port => 2,
        }
    }
    /// The number by which `nft` knows how to show it.
    fn shown(self) -> u32 {
        match self {
            Self::Address4 => 7,
            Self::Address6 => 8,
            Self::Protocol => 12,
            Self::Port => 13,
            // `nft` (1.0.6) dies of an integer beside other fields: it does not know how long one is.
            Self::Mark | Self::Number => 19,
            Self::Name => 41,
        }
    }
}

/// The number by which `nft` shows bytes of any length.
const INTEGER: u32 = 4;
/// The most fields whose numbers `nft` can tell apart.
const FIELDS: usize = 5;

/// The length of fields, and the number by which `nft` shows them.
fn laid_out(fields: &[Field]) -> (u32, u32) {
    if let [field] = fields {
        return (field.length(), field.shown());
    }
    let length = fields.iter().map(|field| field.length().next_multiple_of(4)).sum();
    let shown = fields.iter().fold(0, |shown, field| shown << 6 | field.shown());
    (length, if fields.len() > FIELDS { INTEGER } else { shown })
}

/// The kind of a set or map.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SetKind {
    /// The key's fields.
    pub key: Vec<Field>,
    /// The fields of a map's values; none for a set.
    pub value: Vec<Field>,
    /// Whether values are verdicts.
    pub verdicts: bool,
    /// Whether keys are ranges.
    pub ranges: bool,
    /// The time-out of elements in milliseconds; 0 for none.
    pub timeout: u64,
    /// Whether rules add elements.
    pub dynamic: bool,
    /// The greatest number of elements; 0 for none.
    pub size: u32,
}

impl SetKind {
    /// A set of keys with these fields.
    pub fn set(key: &[Field]) -> Self {
        let key = key.to_vec();
        Self { key, value: Vec::new(), verdicts: false, ranges: false, timeout: 0, dynamic: false, size: 0 }
    }
    /// A map to values with these fields.
    pub fn map(key: &[Field], value: &[Field]) -> Self {
        Self { value: value.to_vec(), ..Self::set(key) }
    }
    /// A map to verdicts.
    pub fn verdicts(key: &[Field]) -> Self {
        Self { verdicts: true, ..Self::set(key) }
    }
    fn flags(&self) -> u32 {
        let mut flags = 0;
        for (on, flag) in [
            (!self.value.is_empty() || self.verdicts, SetFlags::Map),
            (self.ranges, SetFlags::Interval),
            (self.timeout != 0, SetFlags::Timeout),
            (self.dynamic, SetFlags::Eval),
            (self.key.len() > 1, SetFlags::Concat),
        ] {
            flags |= if on { flag as u32 } else { 0 };
        }
        flags
    }
}

/// An element of a set or map.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Element<'a> {
    /// The key, or the first of a range.
    pub key: Cow<'a, [u8]>,
    /// The last key of a range.
    pub last: Option<Cow<'a, [u8]>>,
    /// A map's value.
    pub value: Option<Value<'a>>,
}

impl<'a> Element<'a> {
    /// An element of a set.
    pub fn key(key: impl Into<Cow<'a, [u8]>>) -> Self {
        Self { key: key.into(), last: None, value: None }
    }
    /// An element of a map.
    pub fn value(key: impl Into<Cow<'a, [u8]>>, value: Value<'a>) -> Self {
        Self { key: key.into(), last: None, value: Some(value) }
    }
}

/// Changes of a table.
pub struct Batch<'t> {
    table: &'t Table,
    buffer: Vec<u8>,
    /// The place of each message, and what it is to do.
    messages: Vec<(usize, String)>,
    /// A number for each set that is made here.
    sets: u32,
}

impl<'t> Batch<'t> {
    /// No changes yet.
    pub fn new(table: &'t Table) -> Self {
        Self { table, buffer: Vec::new(), messages: Vec::new(), sets: 0 }
    }
    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
    /// The number of bytes that the kernel will read.
    pub fn length(&self) -> usize {
        self.buffer.len()
    }

    fn header(&self) -> Nfgenmsg {
        let mut header = Nfgenmsg::new();
        header.nfgen_family = self.table.family.number();
        header
    }

    fn push(&mut self, what: String, request: &impl NetlinkRequest) {
        self.messages.push((self.buffer.len(), what));
        message(&mut self.buffer, request, 0, 0);
    }

    /// Makes the table; it may be there.
    pub fn add_table(&mut self) {
        let mut request = Request::new().set_create().op_newtable_do(&self.header());
        request.encode().push_name_bytes(self.table.name.as_bytes());
        self.push(format!("cannot make table {}", self.table.name), &request);
    }

    /// Removes the table with all that is in it; it must be there.
    pub fn delete_table(&mut self) {
        let mut request = Request::new().op_deltable_do(&self.header());
        request.encode().push_name_bytes(self.table.name.as_bytes());
        self.push(format!("cannot remove table {}", self.table.name), &request);
    }

    /// Makes a chain to which others jump; it may be there. `note` is kept with a new one.
    pub fn add_chain(&mut self, name: &str, note: &[u8]) {
        let mut request = Request::new().set_create().op_newchain_do(&self.header());
        let mut encoder =
            request.encode().push_table_bytes(self.table.name.as_bytes()).push_name_bytes(name.as_bytes());
        if !note.is_empty() {
            put(&mut encoder, CHAIN_NOTE, note);
        }
        drop(encoder);
        self.push(format!("cannot make chain {name}"), &request);
    }

    /// Makes a base chain; it may be there with the same hook and priority.
    pub fn add_base_chain(&mut self, name: &str, kind: Kind, hook: Hook, priority: i32) {
        let mut request = Request::new().set_create().op_newchain_do(&self.header());
        let encoder =
            request.encode().push_table_bytes(self.table.name.as_bytes()).push_name_bytes(name.as_bytes());
        let encoder = encoder.nested_hook().push_num(hook.number()).push_priority(priority).end_nested();
        drop(encoder.push_type_bytes(kind.name()));
        self.push(format!("cannot make chain {name}"), &request);
    }

    /// Removes a chain's rules.
    pub fn flush_chain(&mut self, name: &str) {
        let mut request = Request::new().op_delrule_do(&self.header());
        request.encode().push_table_bytes(self.table.name.as_bytes()).push_chain_bytes(name.as_bytes());
        self.push(format!("cannot remove the rules of chain {name}"), &request);
    }

    /// Removes a chain to which nothing jumps, with its rules; it must be there.
    pub fn delete_chain(&mut self, name: &str) {
        let mut request = Request::new().op_delchain_do(&self.header());
        request.encode().push_table_bytes(self.table.name.as_bytes()).push_name_bytes(name.as_bytes());
        self.push(format!("cannot remove chain {name}"), &request);
    }

    /// Appends a rule to a chain. `note` is kept with it.
    pub fn add_rule(&mut self, chain: &str, rule: &[Expression<'_>], note: &[u8]) {
        let mut request = Request::new().set_create().set_append().op_newrule_do(&self.header());
        drop(
            request.encode().push_table_bytes(self.table.name.as_bytes()).push_chain_bytes(chain.as_bytes()),
        );
        let mut inside = Vec::new();
        nest(&mut inside, RULE_EXPRESSIONS, |to| {
            for expression in rule {
                expression.write(to);
            }
        });
        if !note.is_empty() {
            put(&mut inside, RULE_NOTE, note);
        }
        append(&mut request.encode(), &inside);
        self.push(format!("cannot add a rule to chain {chain}"), &request);
    }

    /// Removes the rule with this handle.
    pub fn delete_rule(&mut self, chain: &str, handle: u64) {
        let mut request = Request::new().op_delrule_do(&self.header());
        let encoder = request.encode().push_table_bytes(self.table.name.as_bytes());
        drop(encoder.push_chain_bytes(chain.as_bytes()).push_handle(handle));
        self.push(format!("cannot remove a rule of chain {chain}"), &request);
    }

    /// Makes a set or map; it may be there with the same kind. `note` is kept with a new one.
    pub fn add_set(&mut self, name: &str, kind: &SetKind, note: &[u8]) {
        /// `NFT_DATA_VERDICT`.
        const VERDICT: u32 = 0xffff_ff00;
        self.sets += 1;
        let mut request = Request::new().set_create().op_newset_do(&self.header());
        let (length, shown) = laid_out(&kind.key);
        let mut encoder = request
            .encode()
            .push_table_bytes(self.table.name.as_bytes())
            .push_name_bytes(name.as_bytes())
            .push_flags(kind.flags())
            .push_key_type(shown)
            .push_key_len(length)
            .push_id(self.sets);
        if kind.verdicts {
            encoder = encoder.push_data_type(VERDICT).push_data_len(0);
        } else if !kind.value.is_empty() {
            let (length, shown) = laid_out(&kind.value);
            encoder = encoder.push_data_type(shown).push_data_len(length);
        }
        if kind.timeout != 0 {
            put(&mut encoder, SET_TIMEOUT, &kind.timeout.to_be_bytes());
        }
        if kind.key.len() > 1 || kind.size != 0 {
            let mut description = encoder.nested_desc();
            if kind.size != 0 {
                description = description.push_size(kind.size);
            }
            if kind.key.len() > 1 {
                let mut fields = description.nested_concat();
                for field in &kind.key {
                    fields = fields.nested_elem().push_len(field.length()).end_nested();
                }
                description = fields.end_nested();
            }
            encoder = description.end_nested();
        }
        if !note.is_empty() {
            put(&mut encoder, SET_NOTE, note);
        }
        drop(encoder);
        self.push(format!("cannot make set {name}"), &request);
    }

    /// Removes a set that no rule uses, with its elements; it must be there.
    pub fn delete_set(&mut self, name: &str) {
        let mut request = Request::new().op_delset_do(&self.header());
        request.encode().push_table_bytes(self.table.name.as_bytes()).push_name_bytes(name.as_bytes());
        self.push(format!("cannot remove set {name}"), &request);
    }

    /// Removes a set's elements.
    pub fn flush_set(&mut self, name: &str) {
        let mut request = Request::new().op_delsetelem_do(&self.header());
        request.encode().push_table_bytes(self.table.name.as_bytes()).push_set_bytes(name.as_bytes());
        self.push(format!("cannot empty set {name}"), &request);
    }

    /// Adds elements to a set or map of this kind; one with the same key and value may be there.
    pub fn add_elements<'e>(
        &mut self,
        set: &str,
        kind: &SetKind,
        elements: impl IntoIterator<Item = &'e Element<'e>>,
    ) {
        self.elements(set, kind, elements, true);
    }

    /// Removes elements; each must be there. Values do not matter.
    pub fn delete_elements<'e>(
        &mut self,
        set: &str,
        kind: &SetKind,
        elements: impl IntoIterator<Item = &'e Element<'e>>,
    ) {
        self.elements(set, kind, elements, false);
    }

    fn elements<'e>(
        &mut self,
        set: &str,
        kind: &SetKind,
        elements: impl IntoIterator<Item = &'e Element<'e>>,
        add: bool,
    ) {
        let mut list = Vec::new();
        for element in elements {
            write_element(&mut list, kind, element, add);
            if list.len() > LONGEST_LIST {
                self.push_elements(set, &list, add);
                list.clear();
            }
        }
        if !list.is_empty() {
            self.push_elements(set, &list, add);
        }
    }

    fn push_elements(&mut self, set: &str, list: &[u8], add: bool) {
        let table = self.table.name.as_bytes();
        let mut inside = Vec::new();
        nest(&mut inside, ELEMENTS, |to| to.extend_from_slice(list));
        if add {
            let mut request = Request::new().set_create().op_newsetelem_do(&self.header());
            drop(request.encode().push_table_bytes(table).push_set_bytes(set.as_bytes()));
            append(&mut request.encode(), &inside);
            self.push(format!("cannot add elements to set {set}"), &request);
        } else {
            let mut request = Request::new().op_delsetelem_do(&self.header());
            drop(request.encode().push_table_bytes(table).push_set_bytes(set.as_bytes()));
            append(&mut request.encode(), &inside);
            self.push(format!("cannot remove elements of set {set}"), &request);
        }
    }

    /// The messages between their frame, what each is to do, and the sequence number of the first of them.
    pub(super) fn finish(self, sequence: u32) -> (Vec<u8>, Vec<String>, u32) {
        /// The place of the sequence number in a message's header.
        const SEQUENCE: usize = 8;
        let mut frame = Nfgenmsg::new();
        frame.set_res_id(NFTABLES);
        let mut out = Vec::with_capacity(self.buffer.len() + 64);
        message(&mut out, &Request::new().op_batch_begin_do(&frame), 0, sequence);
        let start = out.len();
        out.extend_from_slice(&self.buffer);
        let first = sequence.wrapping_add(1);
        let mut names = Vec::with_capacity(self.messages.len());
        let mut next = first;
        for (place, name) in self.messages {
            let place = start + place + SEQUENCE;
            out[place..place + 4].copy_from_slice(&next.to_ne_bytes());
            next = next.wrapping_add(1);
            names.push(name);
        }
        message(&mut out, &Request::new().op_batch_end_do(&frame), 0, next);
        (out, names, first)
    }
}

/// Appends attributes that are encoded already.
fn append(to: &mut impl netlink_bindings::traits::Pusher, attributes: &[u8]) {
    let to = to.as_vec_mut();
    netlink_bindings::utils::align(to);
    to.extend_from_slice(attributes);
}

fn write_element(to: &mut Vec<u8>, kind: &SetKind, element: &Element<'_>, add: bool) {
    let one = |to: &mut Vec<u8>, key: &[u8], last: Option<&[u8]>, flags: u32, value: Option<&Value<'_>>| {
        nest(to, ELEMENT, |to| {
            put_value(to, ELEMENT_KEY, key);
            if let Some(last) = last {
                put_value(to, ELEMENT_END, last);
            }
            if flags != 0 {
                put_be32(to, ELEMENT_FLAGS, flags);
            }
            match value {
                Some(Value::Bytes(bytes)) if add => put_value(to, ELEMENT_DATA, bytes),
                Some(Value::Verdict(verdict)) if add => put_verdict(to, ELEMENT_DATA, verdict),
                _ => {}
            }
        });
    };
    let value = element.value.as_ref();
    let last = element.last.as_deref().unwrap_or(&element.key);
    if !kind.ranges {
        one(to, &element.key, None, 0, value);
    } else if kind.key.len() > 1 {
        one(to, &element.key, Some(last), 0, value);
    } else {
        // A range of one field is two elements: its first key, and the first after it that is not in it.
        one(to, &element.key, None, 0, value);
        let mut after = last.to_vec();
        if increase(&mut after) {
            one(to, &after, None, SetElemFlags::IntervalEnd as u32, None);
        }
    }
}

/// Adds one to a number in network byte order; false if there is no greater one.
fn increase(number: &mut [u8]) -> bool {
    for byte in number.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return true;
        }
    }
    false
}
