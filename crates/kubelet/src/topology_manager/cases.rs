//! Upstream's tables, as its own tests have them: one case a line, in JSON.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Hint, NumaMask};
use crate::node::hardware::{Hardware, NumaNode};

/// The cases of a file, of which there are so many.
pub(crate) fn cases(file: &str, count: usize) -> Vec<Value> {
    let all: Vec<Value> = file.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(all.len(), count, "the number of cases");
    all
}

/// Numbers; none for null.
pub(crate) fn usizes(value: &Value) -> Vec<usize> {
    let all = value.as_array().into_iter().flatten();
    all.map(|n| usize::try_from(n.as_u64().unwrap()).unwrap()).collect()
}

/// A set of NUMA nodes.
pub(crate) fn mask(value: &Value) -> NumaMask {
    NumaMask::of(usizes(value))
}

/// A hint.
pub(crate) fn hint(value: &Value) -> Hint {
    let nodes = &value["NUMANodeAffinity"];
    let affinity = (!nodes.is_null()).then(|| mask(nodes));
    Hint { affinity, preferred: value["Preferred"] == true }
}

/// Options by their names.
pub(crate) fn options(value: &Value) -> BTreeMap<String, String> {
    serde_json::from_value::<Option<_>>(value.clone()).unwrap().unwrap_or_default()
}

/// The NUMA nodes of cAdvisor's description of a machine.
pub(crate) fn hardware(topology: &Value) -> Hardware {
    let field =
        |node: &Value, names: [&str; 2]| names.map(|n| node[n].clone()).into_iter().find(|v| !v.is_null());
    let node = |node: &Value| {
        let pages = field(node, ["HugePages", "hugepages"]).unwrap_or_default();
        let page = |page: &Value| {
            let number = |names| field(page, names).and_then(|v| v.as_u64()).unwrap_or_default();
            (number(["PageSize", "page_size"]) * 1024, number(["NumPages", "num_pages"]))
        };
        NumaNode {
            id: usize::try_from(field(node, ["Id", "node_id"]).unwrap().as_u64().unwrap()).unwrap(),
            memory: field(node, ["Memory", "memory"]).and_then(|v| v.as_u64()).unwrap_or_default(),
            hugepages: pages.as_array().into_iter().flatten().map(page).collect(),
            distances: field(node, ["Distances", "distances"]).map(|v| serde_json::from_value(v).unwrap()),
            cores: Vec::new(),
        }
    };
    Hardware { nodes: topology.as_array().into_iter().flatten().map(node).collect() }
}
