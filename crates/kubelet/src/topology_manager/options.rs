//! `topologyManagerPolicyOptions`: upstream's rules and texts. Pure.

use std::collections::BTreeMap;

/// The most NUMA nodes of a machine without an option; upstream's.
const USUAL_NODES: usize = 8;
const CLOSEST: &str = "prefer-closest-numa-nodes";
const MOST: &str = "max-allowable-numa-nodes";

/// The options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Options {
    /// Whether NUMA nodes near to each other are preferred.
    pub(crate) closest: bool,
    /// The most NUMA nodes of a machine.
    pub(crate) max_nodes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { closest: false, max_nodes: USUAL_NODES }
    }
}

/// An option that cannot be taken; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyOptionError {
    /// There is no such option.
    #[error("unknown Topology Manager Policy option: {}", api::go::quote(.0))]
    Unknown(String),
    /// It is no boolean.
    #[error(
        "bad value for option {}: strconv.ParseBool: parsing {}: invalid syntax",
        api::go::quote(.0),
        api::go::quote(.1)
    )]
    NoBool(&'static str, String),
    /// It is no number.
    #[error(
        "unable to convert policy option to integer {}: strconv.Atoi: parsing {}: invalid syntax",
        api::go::quote(.0),
        api::go::quote(.1)
    )]
    NoNumber(&'static str, String),
    /// The number is too small.
    #[error("the minimum value of {} should not be less than {USUAL_NODES}", api::go::quote(.0))]
    TooSmall(&'static str),
}

impl Options {
    /// Reads options by their names. Both are stable, so no gate hides them.
    ///
    /// # Errors
    /// One is none.
    pub(crate) fn parse(options: &BTreeMap<String, String>) -> Result<Self, TopologyOptionError> {
        let mut all = Self::default();
        for (name, value) in options {
            match name.as_str() {
                CLOSEST => {
                    let read = api::go::parse_bool(value);
                    all.closest = read.ok_or_else(|| TopologyOptionError::NoBool(CLOSEST, value.clone()))?;
                }
                MOST => {
                    let read: Result<i64, _> = value.parse();
                    let read = read.map_err(|_| TopologyOptionError::NoNumber(MOST, value.clone()))?;
                    let nodes = usize::try_from(read).ok().filter(|n| *n >= USUAL_NODES);
                    all.max_nodes = nodes.ok_or(TopologyOptionError::TooSmall(MOST))?;
                    if all.max_nodes > USUAL_NODES {
                        tracing::warn!(
                            nodes = all.max_nodes,
                            "{MOST} is more than is recommended, which is {USUAL_NODES}"
                        );
                    }
                }
                other => return Err(TopologyOptionError::Unknown(other.to_owned())),
            }
        }
        Ok(all)
    }
}
