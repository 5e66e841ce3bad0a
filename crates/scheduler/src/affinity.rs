//! The terms of Pod affinity and anti-affinity, compiled once per Pod (upstream's `AffinityTerm`).

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, WeightedPodAffinityTerm};

use objects::labels::CompactLabels;
use objects::{Labels as NamespaceLabels, Selector, SelectorError};

/// The labels of every known namespace.
pub type Namespaces = HashMap<String, NamespaceLabels>;

/// One term: which Pods it speaks of, and within which part of the cluster.
///
/// `matchLabelKeys` and `mismatchLabelKeys` are not here: the API server has merged them into the label selector
/// when the Pod was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// Namespaces by name.
    namespaces: BTreeSet<String>,
    /// Namespaces by their labels, besides those by name.
    namespace_selector: Selector,
    /// Pods by their labels.
    selector: Selector,
    /// The node label whose value says what counts as the same place.
    pub topology_key: String,
}

impl Term {
    /// Compiles a term of `pod`. A term that names no namespaces, neither by name nor by labels, means the Pod's own.
    fn new(pod: &Pod, term: &PodAffinityTerm) -> Result<Self, SelectorError> {
        let selector = Selector::new(term.label_selector.as_ref())?;
        let namespace_selector = Selector::new(term.namespace_selector.as_ref())?;
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(pod.metadata.namespace.clone().unwrap_or_default());
        }
        Ok(Self { namespaces, namespace_selector, selector, topology_key: term.topology_key.clone() })
    }

    /// Whether the term speaks of a Pod of this namespace with these labels; the labels of the namespace may be known.
    pub fn matches(
        &self,
        namespace: &str,
        labels: &CompactLabels,
        namespace_labels: Option<&NamespaceLabels>,
    ) -> bool {
        (self.namespaces.contains(namespace) || self.namespace_selector.matches(namespace_labels))
            && self.selector.matches_by(|key| labels.get(key))
    }

    /// The same term with the namespaces that its selector finds put in by name, so that it is matched without looking
    /// namespaces up (upstream's `mergeAffinityTermNamespacesIfNotEmpty`).
    pub fn resolved(mut self, namespaces: &Namespaces) -> Self {
        if !self.namespace_selector.is_everything() {
            let found = namespaces.iter().filter(|(_, labels)| self.namespace_selector.matches(Some(labels)));
            self.namespaces.extend(found.map(|(name, _)| name.clone()));
            self.namespace_selector = Selector::nothing();
        }
        self
    }
}

/// All terms of a Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Terms {
    /// Pods that must be there.
    pub required: Vec<Term>,
    /// Pods that must not be there.
    pub required_anti: Vec<Term>,
    /// Pods that should be there, by weight.
    pub preferred: Vec<(i32, Term)>,
    /// Pods that should not be there, by weight.
    pub preferred_anti: Vec<(i32, Term)>,
    /// The fault in them, "" for none. A list with a wrong term is empty, and a Pod that has one is not placed.
    pub error: String,
}

impl Terms {
    /// No terms.
    pub const NONE: Self = Self {
        required: Vec::new(),
        required_anti: Vec::new(),
        preferred: Vec::new(),
        preferred_anti: Vec::new(),
        error: String::new(),
    };

    /// Compiles the terms of a Pod.
    pub fn of(pod: &Pod) -> Self {
        let affinity = pod.spec.as_ref().and_then(|s| s.affinity.as_ref());
        let Some(affinity) = affinity else { return Self::default() };
        let (with, without) = (affinity.pod_affinity.as_ref(), affinity.pod_anti_affinity.as_ref());
        let mut errors = Vec::new();
        let mut terms = Self::default();
        if let Some(a) = with {
            let lists = (
                &a.required_during_scheduling_ignored_during_execution,
                &a.preferred_during_scheduling_ignored_during_execution,
            );
            terms.required = noted("requiredAffinityTerms", required(pod, lists.0.as_deref()), &mut errors);
            terms.preferred =
                noted("preferredAffinityTerms", preferred(pod, lists.1.as_deref()), &mut errors);
        }
        if let Some(a) = without {
            let lists = (
                &a.required_during_scheduling_ignored_during_execution,
                &a.preferred_during_scheduling_ignored_during_execution,
            );
            terms.required_anti =
                noted("requiredAntiAffinityTerms", required(pod, lists.0.as_deref()), &mut errors);
            terms.preferred_anti =
                noted("preferredAntiAffinityTerms", preferred(pod, lists.1.as_deref()), &mut errors);
        }
        terms.error = match errors.as_slice() {
            [] => String::new(),
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        terms
    }
}

fn noted<T>(list: &str, terms: Result<Vec<T>, SelectorError>, errors: &mut Vec<String>) -> Vec<T> {
    terms.unwrap_or_else(|e| {
        errors.push(format!("{list}: {e}"));
        Vec::new()
    })
}

fn required(pod: &Pod, terms: Option<&[PodAffinityTerm]>) -> Result<Vec<Term>, SelectorError> {
    terms.unwrap_or_default().iter().map(|t| Term::new(pod, t)).collect()
}

fn preferred(
    pod: &Pod,
    terms: Option<&[WeightedPodAffinityTerm]>,
) -> Result<Vec<(i32, Term)>, SelectorError> {
    let each = terms.unwrap_or_default().iter();
    each.map(|t| Ok((t.weight, Term::new(pod, &t.pod_affinity_term)?))).collect()
}

/// Whether the terms are there and all of them speak of a Pod; they must be resolved.
pub fn all_match(terms: &[Term], namespace: &str, labels: &CompactLabels) -> bool {
    !terms.is_empty() && terms.iter().all(|t| t.matches(namespace, labels, None))
}
