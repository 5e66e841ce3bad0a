//! The slices of a Service of one address type: which endpoints are in which slice (upstream: `reconciler.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use client::Cached;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::owned::{MANAGED_BY, PortKey, SERVICE, generate_name, port_key};
use super::{HEADLESS, is_headless};
use crate::common::controller_ref;

/// The name of the controller in the slices' label.
pub(super) const CONTROLLER: &str = "endpointslice-controller.k8s.io";

/// The identity of an endpoint, whatever its conditions: its addresses, its name in DNS, and its Pod.
type Identity = (Vec<String>, Option<String>, Option<(String, String)>);

fn identity(e: &Endpoint) -> Identity {
    let mut addresses = e.addresses.clone();
    addresses.sort();
    let text = |t: &Option<String>| t.clone().unwrap_or_default();
    let hostname = e.hostname.clone().filter(|h| !h.is_empty());
    (addresses, hostname, e.target_ref.as_ref().map(|t| (text(&t.namespace), text(&t.name))))
}

/// Whether two endpoints of the same identity say the same. Hints are looked at apart.
fn says_the_same(a: &Endpoint, b: &Endpoint) -> bool {
    let conditions = |e: &Endpoint| e.conditions.as_ref().map(|c| (c.ready, c.serving, c.terminating));
    let target = |e: &Endpoint| {
        let mut target = e.target_ref.clone();
        if let Some(target) = &mut target {
            target.resource_version = None;
        }
        target
    };
    a.node_name == b.node_name
        && a.zone == b.zone
        && conditions(a).unwrap_or_default() == conditions(b).unwrap_or_default()
        && target(a) == target(b)
}

/// The endpoints that are wanted, by their ports.
#[derive(Default)]
pub(super) struct Wanted(BTreeMap<PortKey, (Vec<EndpointPort>, BTreeMap<Identity, Endpoint>)>);

impl Wanted {
    /// Makes sure that there is a group of these ports, which may stay empty, and adds an endpoint to it.
    pub(super) fn add(&mut self, ports: Vec<EndpointPort>, endpoint: Option<Endpoint>) {
        let group = self.0.entry(port_key(&ports)).or_insert_with(|| (ports, BTreeMap::new()));
        group.1.extend(endpoint.map(|e| (identity(&e), e)));
    }
}

/// The slices as they are to be.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) create: Vec<EndpointSlice>,
    pub(super) update: Vec<EndpointSlice>,
    pub(super) delete: Vec<Arc<EndpointSlice>>,
    pub(super) unchanged: Vec<Arc<EndpointSlice>>,
    pub(super) figures: Figures,
}

/// The numbers of a layout, for metrics.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Figures {
    /// The endpoints that came.
    pub(super) added: usize,
    /// The endpoints that went.
    pub(super) removed: usize,
    /// All endpoints.
    pub(super) endpoints: usize,
    /// The slices that there are then.
    pub(super) slices: usize,
    /// The slices that would be enough.
    pub(super) ideal: usize,
}

impl Layout {
    /// All slices that there are then.
    pub(super) fn all(&self) -> impl Iterator<Item = &EndpointSlice> {
        self.create.iter().chain(&self.update).chain(self.unchanged.iter().map(|s| &**s))
    }
    /// The slices that are written.
    pub(super) fn written(&mut self) -> impl Iterator<Item = &mut EndpointSlice> {
        self.create.iter_mut().chain(&mut self.update)
    }
    /// Writes those of the unchanged slices, too, of which this is said.
    pub(super) fn touch(&mut self, mut must: impl FnMut(&EndpointSlice) -> bool) {
        let (touched, unchanged) = std::mem::take(&mut self.unchanged).into_iter().partition(|s| must(s));
        self.unchanged = unchanged;
        let touched: Vec<Arc<EndpointSlice>> = touched;
        self.update.extend(touched.iter().map(|s| (**s).clone()));
    }
    /// Lets new slices take the place of slices of the same Service that would be deleted.
    pub(super) fn recycle(&mut self, template: &Template<'_>) {
        let delete = std::mem::take(&mut self.delete);
        for old in delete {
            if !template.owns(&old) {
                self.delete.push(old);
                continue;
            }
            let Some(new) = self.create.pop() else {
                self.delete.push(old);
                continue;
            };
            let metadata =
                ObjectMeta { labels: new.metadata.labels, annotations: None, ..old.metadata.clone() };
            self.update.push(EndpointSlice { metadata, ..new });
        }
    }
}

/// A Service's slices of one address type.
pub(super) struct Template<'s> {
    service: &'s Service,
    address_type: &'static str,
    labels: BTreeMap<String, String>,
    /// The greatest number of endpoints of a slice.
    limit: usize,
}

impl<'s> Template<'s> {
    /// Makes the template of a Service and an address type, with the greatest number of endpoints of a slice.
    pub(super) fn new(
        service: &'s Service,
        spec: &ServiceSpec,
        address_type: &'static str,
        limit: usize,
    ) -> Self {
        let mut labels = service.metadata.labels.clone().unwrap_or_default();
        labels.remove(HEADLESS);
        if is_headless(spec) {
            labels.insert(HEADLESS.to_owned(), String::new());
        }
        labels.insert(SERVICE.to_owned(), service.name().to_owned());
        labels.insert(MANAGED_BY.to_owned(), CONTROLLER.to_owned());
        Self { service, address_type, labels, limit: limit.max(1) }
    }

    /// Whether a slice belongs to this very Service, not to an earlier one of its name.
    pub(super) fn owns(&self, slice: &EndpointSlice) -> bool {
        let mut owners = slice.metadata.owner_references.iter().flatten();
        owners.any(|r| {
            r.kind == "Service" && r.api_version == "v1" && Some(&r.uid) == self.service.metadata.uid.as_ref()
        })
    }

    fn slice(&self, ports: Vec<EndpointPort>, endpoints: Vec<Endpoint>) -> EndpointSlice {
        EndpointSlice {
            metadata: ObjectMeta {
                generate_name: Some(generate_name(self.service.name())),
                namespace: self.service.metadata.namespace.clone(),
                labels: Some(self.labels.clone()),
                owner_references: Some(vec![controller_ref(self.service)]),
                ..ObjectMeta::default()
            },
            address_type: self.address_type.to_owned(),
            endpoints: Some(endpoints),
            ports: Some(ports),
        }
    }

    /// Whether a slice is the empty one of a Service without endpoints.
    fn is_placeholder(&self, slice: &EndpointSlice) -> bool {
        self.owns(slice)
            && slice.endpoints.as_ref().is_none_or(Vec::is_empty)
            && slice.ports.as_ref().is_none_or(Vec::is_empty)
            && slice.metadata.labels.as_ref() == Some(&self.labels)
    }

    /// Lays out all endpoints of the address type, whose existing slices are given.
    pub(super) fn lay_out(&self, wanted: Wanted, existing: &[Arc<EndpointSlice>]) -> Layout {
        let mut layout = Layout::default();
        let mut groups: BTreeMap<PortKey, Vec<Arc<EndpointSlice>>> = BTreeMap::new();
        for slice in existing {
            if self.owns(slice) {
                let key = port_key(slice.ports.as_deref().unwrap_or_default());
                groups.entry(key).or_default().push(slice.clone());
            } else {
                layout.delete.push(slice.clone());
            }
        }
        for (key, (ports, endpoints)) in wanted.0 {
            layout.figures.endpoints += endpoints.len();
            layout.figures.ideal += endpoints.len().div_ceil(self.limit);
            self.lay_out_group(&ports, endpoints, groups.remove(&key).unwrap_or_default(), &mut layout);
        }
        layout.delete.extend(groups.into_values().flatten());
        // A Service always has a slice, if an empty one, as a sign that it is looked after.
        if existing.len() == layout.delete.len() && layout.create.is_empty() {
            match &layout.delete[..] {
                [only] if self.is_placeholder(only) => layout.unchanged.append(&mut layout.delete),
                _ => layout.create.push(self.slice(Vec::new(), Vec::new())),
            }
        }
        layout.figures.slices = layout.create.len() + layout.update.len() + layout.unchanged.len();
        layout.figures.ideal = layout.figures.ideal.max(1);
        layout
    }

    /// Lays out the endpoints of one set of ports: each stays where it is; the others fill slices that are written
    /// anyway, then the fullest one that has room for all of the rest, or new ones.
    fn lay_out_group(
        &self,
        ports: &[EndpointPort],
        mut wanted: BTreeMap<Identity, Endpoint>,
        existing: Vec<Arc<EndpointSlice>>,
        layout: &mut Layout,
    ) {
        let (mut written, mut unchanged) = (Vec::new(), Vec::new());
        for old in existing {
            let there = old.endpoints.as_deref().unwrap_or_default();
            let mut differs = false;
            let mut kept = Vec::with_capacity(there.len());
            for endpoint in there {
                if let Some(new) = wanted.remove(&identity(endpoint)) {
                    differs |= !says_the_same(&new, endpoint);
                    kept.push(new);
                }
            }
            let lost = there.len() - kept.len();
            layout.figures.removed += lost;
            if lost > 0 && kept.is_empty() {
                layout.delete.push(old);
            } else if lost > 0 || differs || old.metadata.labels.as_ref() != Some(&self.labels) {
                let mut new = (*old).clone();
                new.endpoints = Some(kept);
                new.metadata.labels = Some(self.labels.clone());
                written.push(new);
            } else {
                unchanged.push(old);
            }
        }
        layout.figures.added += wanted.len();
        let mut rest = wanted.into_values();
        written.sort_by_key(|slice| std::cmp::Reverse(size(slice)));
        for slice in &mut written {
            let room = self.limit.saturating_sub(size(slice));
            slice.endpoints.get_or_insert_default().extend(rest.by_ref().take(room));
        }
        while rest.len() > 0 {
            let left = rest.len();
            let fits = |slice: &EndpointSlice| left < self.limit && size(slice) + left <= self.limit;
            let candidates = unchanged.iter().enumerate().filter(|(_, slice)| fits(slice));
            if let Some((at, _)) = candidates.max_by_key(|(_, slice)| size(slice)) {
                let mut new = (*unchanged.remove(at)).clone();
                new.endpoints.get_or_insert_default().extend(rest.by_ref());
                written.push(new);
            } else {
                let part = rest.by_ref().take(self.limit).collect();
                layout.create.push(self.slice(ports.to_vec(), part));
            }
        }
        layout.update.append(&mut written);
        layout.unchanged.append(&mut unchanged);
    }
}

fn size(slice: &EndpointSlice) -> usize {
    slice.endpoints.as_ref().map_or(0, Vec::len)
}

#[cfg(test)]
mod tests;
