//! The contents of a table.

use std::borrow::Cow;
use std::cell::RefCell;

use netlink_bindings::nftables::{
    IterableDataAttrs, IterableSetelemAttrs, Nfgenmsg, Request, SetElemFlags, VerdictCode,
};
use netlink_bindings::utils::find_attr;

use super::{Element, Filter, SetKind, Table, Value, Verdict};
use crate::Error;

/// `NFTA_CHAIN_USERDATA`, `NFTA_SET_ELEM_KEY_END`, `NFTA_DATA_VALUE`.
const CHAIN_NOTE: u16 = 12;
const KEY_END: u16 = 10;
const DATA_VALUE: u16 = 1;

/// A chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// Whether it is a base chain.
    pub base: bool,
    /// The bytes that were given with it.
    pub note: Vec<u8>,
}

/// A set or map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// The bytes that were given with it.
    pub note: Vec<u8>,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The chain's name.
    pub chain: String,
    /// The number by which it can be removed.
    pub handle: u64,
    /// The bytes that were given with it.
    pub note: Vec<u8>,
}

impl Filter {
    fn header(table: &Table) -> Nfgenmsg {
        let mut header = Nfgenmsg::new();
        header.nfgen_family = table.family.number();
        header
    }

    /// The names of the tables of the family.
    pub fn tables(&mut self, family: super::Family) -> Result<Vec<String>, Error> {
        let found = RefCell::new(Vec::new());
        let request = Request::new().op_gettable_dump(&Self::header(&Table { family, name: String::new() }));
        self.socket.list(
            "cannot list the tables",
            &request,
            || found.borrow_mut().clear(),
            |(_, attributes)| {
                if let Ok(name) = attributes.get_name() {
                    found.borrow_mut().push(name.to_string_lossy().into_owned());
                }
            },
        )?;
        Ok(found.into_inner())
    }

    /// The chains of a table; none if there is no table.
    pub fn chains(&mut self, table: &Table) -> Result<Vec<Chain>, Error> {
        let found = RefCell::new(Vec::new());
        // The kernel lists the chains of all tables of the family.
        let request = Request::new().op_getchain_dump(&Self::header(table));
        self.socket.list(
            "cannot list the chains",
            &request,
            || found.borrow_mut().clear(),
            |(_, attributes)| {
                if attributes.get_table().is_ok_and(|of| of.to_bytes() == table.name.as_bytes())
                    && let Ok(name) = attributes.get_name()
                {
                    found.borrow_mut().push(Chain {
                        name: name.to_string_lossy().into_owned(),
                        base: attributes.get_hook().is_ok(),
                        // The bindings (0.3.5) take another number for it.
                        note: find_attr(attributes.get_buf(), CHAIN_NOTE)
                            .map(<[u8]>::to_vec)
                            .unwrap_or_default(),
                    });
                }
            },
        )?;
        Ok(found.into_inner())
    }

    /// The sets and maps of a table; none if there is no table.
    pub fn sets(&mut self, table: &Table) -> Result<Vec<Set>, Error> {
        let found = RefCell::new(Vec::new());
        let mut request = Request::new().op_getset_dump(&Self::header(table));
        request.encode().push_table_bytes(table.name.as_bytes());
        let listed = self.socket.list(
            "cannot list the sets",
            &request,
            || found.borrow_mut().clear(),
            |(_, attributes)| {
                if let Ok(name) = attributes.get_name() {
                    let name = name.to_string_lossy().into_owned();
                    let note = attributes.get_userdata().map(<[u8]>::to_vec).unwrap_or_default();
                    found.borrow_mut().push(Set { name, note });
                }
            },
        );
        match listed {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(found.into_inner()),
        }
    }

    /// The rules of a table; none if there is no table.
    pub fn rules(&mut self, table: &Table) -> Result<Vec<Rule>, Error> {
        let found = RefCell::new(Vec::new());
        let mut request = Request::new().op_getrule_dump(&Self::header(table));
        request.encode().push_table_bytes(table.name.as_bytes());
        let listed = self.socket.list(
            "cannot list the rules",
            &request,
            || found.borrow_mut().clear(),
            |(_, attributes)| {
                if let (Ok(chain), Ok(handle)) = (attributes.get_chain(), attributes.get_handle()) {
                    let chain = chain.to_string_lossy().into_owned();
                    let note = attributes.get_userdata().map(<[u8]>::to_vec).unwrap_or_default();
                    found.borrow_mut().push(Rule { chain, handle, note });
                }
            },
        );
        match listed {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(found.into_inner()),
        }
    }

    /// The elements of a set or map of this kind, in order; none if there is none. Elements whose time is over may be
    /// among them.
    pub fn elements(
        &mut self,
        table: &Table,
        set: &str,
        kind: &SetKind,
    ) -> Result<Vec<Element<'static>>, Error> {
        /// How often a set is read while the kernel moves its elements to a larger table; that takes milliseconds.
        const READINGS: usize = 100;
        for _ in 0..READINGS {
            let mut found = self.elements_once(table, set, kind)?;
            found.sort_unstable();
            // One that was read twice means that another one was not read.
            if found.windows(2).all(|pair| pair[0].key != pair[1].key) {
                return Ok(found);
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        Err(Error::Changing(format!("cannot list the elements of set {set}")))
    }

    fn elements_once(
        &mut self,
        table: &Table,
        set: &str,
        kind: &SetKind,
    ) -> Result<Vec<Element<'static>>, Error> {
        let found: RefCell<Vec<Element<'static>>> = RefCell::new(Vec::new());
        let mut request = Request::new().op_getsetelem_dump(&Self::header(table));
        request.encode().push_table_bytes(table.name.as_bytes()).push_set_bytes(set.as_bytes());
        let mut ends: RefCell<Vec<Vec<u8>>> = RefCell::new(Vec::new());
        let listed = self.socket.list(
            "cannot list the elements of a set",
            &request,
            || {
                found.borrow_mut().clear();
                ends.borrow_mut().clear();
            },
            |(_, attributes)| {
                let Ok(elements) = attributes.get_elements() else { return };
                for element in elements.flatten() {
                    let netlink_bindings::nftables::SetelemListElemAttrs::Elem(element) = element;
                    let Some(key) = bytes(element.get_key()) else { continue };
                    if is_end(&element) {
                        ends.borrow_mut().push(key);
                    } else {
                        found.borrow_mut().push(read(&element, key));
                    }
                }
            },
        );
        match listed {
            Err(error) if error.is_missing() => return Ok(Vec::new()),
            other => other?,
        }
        let mut found = found.into_inner();
        if kind.ranges && kind.key.len() == 1 {
            join(&mut found, ends.get_mut());
        }
        Ok(found)
    }
}

/// Whether an element is the end of the range before it, which is not in it.
fn is_end(element: &IterableSetelemAttrs<'_>) -> bool {
    let flags = element.get_flags().ok().and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
    flags.is_some_and(|flags| flags & SetElemFlags::IntervalEnd as u32 != 0)
}

/// Gives each range the key before the least end after its first key.
fn join(ranges: &mut [Element<'static>], ends: &mut [Vec<u8>]) {
    ends.sort();
    for range in ranges {
        let after = ends.partition_point(|end| end[..] <= range.key[..]);
        let mut last = ends.get(after).cloned().unwrap_or_else(|| vec![0; range.key.len()]);
        for byte in last.iter_mut().rev() {
            *byte = byte.wrapping_sub(1);
            if *byte != 0xff {
                break;
            }
        }
        range.last = Some(Cow::Owned(last));
    }
}

type Read<T> = Result<T, netlink_bindings::utils::ErrorContext>;

fn bytes(data: Read<IterableDataAttrs<'_>>) -> Option<Vec<u8>> {
    data.ok()?.get_value().ok().map(<[u8]>::to_vec)
}

fn read(element: &IterableSetelemAttrs<'_>, key: Vec<u8>) -> Element<'static> {
    let value = element.get_data().ok().and_then(|data| {
        if let Ok(value) = data.get_value() {
            return Some(Value::Bytes(Cow::Owned(value.to_vec())));
        }
        let verdict = data.get_verdict().ok()?;
        let chain = || {
            let name = verdict.get_chain().map(|name| name.to_string_lossy().into_owned());
            Cow::Owned(name.unwrap_or_default())
        };
        let code = verdict.get_code().ok()?;
        Some(Value::Verdict(match VerdictCode::from_value(u64::from(code))? {
            VerdictCode::Accept => Verdict::Accept,
            VerdictCode::Drop => Verdict::Drop,
            VerdictCode::Return => Verdict::Return,
            VerdictCode::Continue => Verdict::Continue,
            VerdictCode::Jump => Verdict::Jump(chain()),
            VerdictCode::Goto => Verdict::Goto(chain()),
            _ => return None,
        }))
    });
    // The bindings (0.3.5) take another number for it.
    let last = find_attr(element.get_buf(), KEY_END).and_then(|data| find_attr(data, DATA_VALUE));
    let last = last.map(|last| Cow::Owned(last.to_vec()));
    Element { key: Cow::Owned(key), last, value }
}
