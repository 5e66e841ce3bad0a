//! Placements: the parts of a cluster in which a group of Pods is tried (upstream's `Placement`).

use std::sync::Arc;

use k8s_openapi::api::scheduling::v1alpha2::PodGroup;

use crate::cache::{Cache, NodeInfo};
use crate::framework::state::State;
use crate::pod::PodInfo;

/// A part of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// Its name, which the plugin that made it chose.
    pub name: String,
    /// Its nodes, by index.
    pub nodes: Vec<usize>,
}

impl Placement {
    /// The whole cluster.
    pub fn all(cluster: &Cache) -> Self {
        Self { name: String::new(), nodes: (0..cluster.nodes().len()).collect() }
    }
    /// Its nodes.
    pub fn nodes<'c>(&'c self, cluster: &'c Cache) -> impl Iterator<Item = &'c NodeInfo> {
        self.nodes.iter().filter_map(|i| cluster.nodes().get(*i))
    }
}

/// The nodes that a turn looks at; the others are as if they were not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Within {
    inside: Vec<bool>,
    count: usize,
}

impl Within {
    /// The nodes of a placement, of so many; `None` if these are all nodes.
    ///
    /// # Errors
    /// The number of a node that there is not.
    pub fn new(placement: &Placement, all: usize) -> Result<Option<Self>, usize> {
        let mut inside = vec![false; all];
        for i in &placement.nodes {
            *inside.get_mut(*i).ok_or(*i)? = true;
        }
        let count = inside.iter().filter(|is| **is).count();
        Ok((count < all).then_some(Self { inside, count }))
    }
    /// How many they are.
    pub fn count(&self) -> usize {
        self.count
    }
    /// Whether a node is one of them.
    pub fn contains(&self, node: usize) -> bool {
        self.inside.get(node) == Some(&true)
    }
}

/// The turn of a group.
#[derive(Debug)]
pub struct GroupCycle<'a> {
    /// The Pods of the group that have no node, in the order in which they are tried; there is one at least.
    pub pods: &'a [PodInfo],
    /// The group's object, unless it is gone.
    pub group: Option<Arc<PodGroup>>,
    /// The cluster.
    pub cluster: &'a Cache,
    /// The notes of plugins.
    pub state: State,
}

impl GroupCycle<'_> {
    /// The group's namespace and name.
    pub fn name(&self) -> (&str, &str) {
        self.pods.first().map_or(("", ""), |pod| (pod.namespace(), pod.group().unwrap_or_default()))
    }
}

/// The nodes that Pods of a group would have in a placement.
#[derive(Debug, Clone, Copy)]
pub struct Assignments<'a> {
    /// The placement.
    pub placement: &'a Placement,
    /// The Pods that fit, with the names of their nodes.
    pub proposed: &'a [(PodInfo, String)],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_of_the_nodes() {
        let of =
            |nodes: &[usize], all| Within::new(&Placement { name: "p".into(), nodes: nodes.to_vec() }, all);
        let some = of(&[2, 0, 2], 4).unwrap().unwrap();
        assert_eq!(
            (some.count(), [0, 1, 2, 3, 4].map(|i| some.contains(i))),
            (2, [true, false, true, false, false])
        );
        assert_eq!(of(&[1, 0], 2), Ok(None), "all are no restriction");
        assert_eq!(of(&[], 1).unwrap().map(|none| none.count()), Some(0));
        assert_eq!(of(&[0, 7], 2), Err(7));
    }
}
