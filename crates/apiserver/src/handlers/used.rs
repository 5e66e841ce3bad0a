//! The objects of `metrics.k8s.io`, as metrics-server makes them: what nodes and Pods use now. They are made when they
//! are asked for, of those whose nodes answer.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use api::quantity::Quantity;
use api::view::{Edit, text_map};
use api::{Node, Object, Schema, Status, Struct, Text};
use jiff::{SignedDuration, Timestamp};

use super::body::scope_namespace;
use super::scope::Handlers;
use crate::catalog::ResourceEntry;
use crate::options::ListOptions;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::routes::method_not_allowed;
use crate::select::Selection;
use crate::usage::{History, Used};

/// Answers get and list of what nodes use.
pub(crate) async fn nodes(
    handlers: &Handlers,
    req: &Request,
    resource: &Arc<ResourceEntry>,
) -> Result<Outcome, Status> {
    let source = Source::new(handlers, req, resource)?;
    let nodes = source.chosen()?;
    let told = source.told(nodes.iter().map(|node| node.data.name.to_string())).await;
    let items = nodes.iter().filter_map(|node| {
        let used = told.get(node.data.name.as_str())?.node()?;
        let mut tree = source.tree(node, used.at, used.window);
        Edit::new(source.schema(), &mut tree).set("usage", amounts(&used));
        Some(tree)
    });
    source.answer(items.collect())
}

/// Answers get and list of what Pods use.
pub(crate) async fn pods(
    handlers: &Handlers,
    req: &Request,
    resource: &Arc<ResourceEntry>,
) -> Result<Outcome, Status> {
    let source = Source::new(handlers, req, resource)?;
    let (node_at, phase_at) = (source.field("spec.nodeName")?, source.field("status.phase")?);
    let mut pods = source.chosen()?;
    pods.retain(|pod| pod.data.fields.get(phase_at).is_some_and(|phase| phase == "Running"));
    let node_of = |pod: &Object| pod.data.fields.get(node_at).filter(|node| !node.is_empty()).cloned();
    let nodes: BTreeSet<Text> = pods.iter().filter_map(|pod| node_of(pod)).collect();
    let told = source.told(nodes.iter().map(ToString::to_string)).await;
    let items = pods.iter().filter_map(|pod| {
        // A node is believed about its own Pods alone.
        let used = told.get(node_of(pod)?.as_str())?.pod(&pod.data.namespace, &pod.data.name)?;
        let mut tree = source.tree(pod, used.at, used.window);
        let mut edit = Edit::new(source.schema(), &mut tree);
        let containers = used.containers.iter().filter_map(|(name, used)| {
            let mut container = edit.fresh("containers")?;
            let mut fields = Edit::new(source.schema(), &mut container);
            fields.set("name", name.as_str());
            fields.set("usage", amounts(used));
            Some(Node::from(container))
        });
        let containers: Vec<Node> = containers.collect();
        edit.set("containers", containers);
        Some(tree)
    });
    source.answer(items.collect())
}

/// A request, and the stored resource whose objects it is about.
struct Source<'a> {
    handlers: &'a Handlers,
    req: &'a Request,
    /// The resource that is made.
    resource: &'a Arc<ResourceEntry>,
    /// The resource of the same name whose objects are stored.
    stored: &'a Arc<ResourceEntry>,
}

impl<'a> Source<'a> {
    fn new(
        handlers: &'a Handlers,
        req: &'a Request,
        resource: &'a Arc<ResourceEntry>,
    ) -> Result<Self, Status> {
        let stored = req.catalog.resources.stored("", &resource.plural);
        Ok(Self { handlers, req, resource, stored: stored.ok_or_else(Status::no_such_resource)? })
    }

    fn schema(&self) -> &Schema {
        self.req.catalog.schema()
    }

    /// The place of a field among the selectable ones of the stored objects.
    fn field(&self, path: &str) -> Result<usize, Status> {
        let fields = &self.stored.strategy.facts().fields;
        let at = fields.iter().position(|f| f.path == path);
        at.ok_or_else(|| Status::internal(format_args!("{path} is not stored apart")))
    }

    /// The stored objects that are asked about, in the order of their names.
    fn chosen(&self) -> Result<Vec<Arc<Object>>, Status> {
        let (info, store) = (&self.req.info, &self.handlers.objects.store);
        let (namespace, id) = (scope_namespace(self.resource, info), self.stored.stored()?.id);
        match info.verb {
            "get" => {
                let object = store.get(id, namespace, &info.name);
                let object = object.ok_or_else(|| Status::not_found("", &self.stored.plural, &info.name))?;
                Ok(vec![object])
            }
            "list" => {
                let options = ListOptions::from_query(&self.req.query, false)?;
                let selection = Selection::new(
                    (&self.req.catalog, self.resource),
                    namespace,
                    &info.name,
                    &options.label_selector,
                    &options.field_selector,
                )?;
                let snapshot = store.snapshot(id);
                let all = snapshot.scan(&selection.scope, None).marked(selection.marks());
                Ok(all.filter(|object| selection.matches(object)).cloned().collect())
            }
            _ => Err(method_not_allowed()),
        }
    }

    /// The histories of nodes, by their names.
    async fn told(&self, nodes: impl Iterator<Item = String>) -> HashMap<String, Arc<History>> {
        match &self.handlers.usage {
            Some(usage) => usage.of(nodes.collect()).await,
            None => HashMap::new(),
        }
    }

    /// The measured form of an object, without what was measured.
    fn tree(&self, of: &Object, at: Timestamp, window: SignedDuration) -> Struct {
        let mut tree = Struct::new(self.resource.root);
        let mut edit = Edit::new(self.schema(), &mut tree);
        if let Some(mut meta) = edit.make("metadata") {
            meta.set("name", of.data.name.as_str());
            if self.resource.namespaced {
                meta.set("namespace", of.data.namespace.as_str());
            }
            meta.set("creationTimestamp", self.handlers.objects.now().as_str());
            if !of.data.labels.is_empty() {
                let labels = of.data.labels.iter().map(|(k, v)| (k.as_str(), v.as_str()));
                meta.set("labels", text_map(labels));
            }
        }
        edit.set("timestamp", api::time::format(at).as_str());
        edit.set("window", api::time::format_duration(window).as_str());
        tree
    }

    fn answer(&self, items: Vec<Struct>) -> Result<Outcome, Status> {
        let resource = Arc::clone(self.resource);
        if self.req.info.verb == "list" {
            return Ok(Outcome::Computed { resource, items });
        }
        let info = &self.req.info;
        let tree = items.into_iter().next().ok_or_else(|| {
            let name = if self.resource.namespaced {
                format!("{}/{}", info.namespace, info.name)
            } else {
                info.name.to_string()
            };
            Status::not_found(&self.resource.group, &self.resource.plural, &name)
        })?;
        Ok(Outcome::Tree { status: 200, kind: resource.kind.clone(), tree, resource: Some(resource) })
    }
}

/// The use of resources, as quantities.
fn amounts(used: &Used) -> Node {
    let bytes = |n: u64| Quantity::from_bytes(i64::try_from(n).unwrap_or(i64::MAX)).to_string();
    // Billionths are what a quantity counts in.
    let cpu = Quantity::parse(&format!("{}n", used.cpu)).unwrap_or_default().to_string();
    let all = [("cpu", cpu), ("memory", bytes(used.memory)), ("swap", bytes(used.swap))];
    text_map(all.iter().map(|(name, amount)| (*name, amount.as_str())))
}
