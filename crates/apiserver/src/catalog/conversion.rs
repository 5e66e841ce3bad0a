//! Conversion of objects between the versions of their kind.
//!
//! A strategy converts at once, a [`Converter`] is waited for. So every conversion is an answer or a future, takes many
//! objects at once, and costs a kind that its strategy converts no future.

use std::time::Duration;

use access::auth::Eventual;
use api::codec::json;
use api::schema::Gvk;
use api::{Node, Schema, Status, Struct};
use kinds::Strategy;
use kinds::convert::NoConversion;
use tokio::time::{Instant, timeout_at};

use super::converter::Converter;
use super::resource::ResourceEntry;
use super::restored::{Bad, restored};
use crate::lanes::timed_out;

/// The time that a converter has; that of upstream's client.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A conversion of a resource's objects.
#[derive(Clone, Copy)]
pub(crate) struct Conversion<'a> {
    /// The schema of the trees.
    pub(crate) schema: &'a Schema,
    /// The resource of the objects.
    pub(crate) resource: &'a ResourceEntry,
    /// The version in which they are.
    pub(crate) from: &'a Gvk,
    /// The version that is wanted.
    pub(crate) to: &'a Gvk,
    /// When nobody waits for them any more.
    pub(crate) deadline: Option<Instant>,
}

impl<'a> Conversion<'a> {
    /// Converts one tree.
    pub(crate) fn one(self, tree: Struct) -> Eventual<'a, Result<Struct, Status>> {
        match self.resource.converter() {
            _ if self.from == self.to => Eventual::Now(Ok(tree)),
            None => Eventual::Now(self.at_once(tree)),
            Some(converter) => Eventual::later(async move {
                let mut converted = self.ask(converter, vec![tree], &self.from.kind).await?;
                converted.pop().ok_or_else(|| self.failed(&self.from.kind, "failed, no objects returned"))
            }),
        }
    }
    /// Converts many trees, which are asked for together; `kind` names them in errors.
    pub(crate) fn all(self, trees: Vec<Struct>, kind: &'a str) -> Eventual<'a, Result<Vec<Struct>, Status>> {
        match self.resource.converter() {
            _ if self.from == self.to || trees.is_empty() => Eventual::Now(Ok(trees)),
            None => Eventual::Now(trees.into_iter().map(|tree| self.at_once(tree)).collect()),
            Some(converter) => Eventual::later(self.ask(converter, trees, kind)),
        }
    }
    /// Converts by the strategy; an error where another one would have to be asked.
    pub(crate) fn at_once(&self, tree: Struct) -> Result<Struct, Status> {
        if self.from == self.to {
            return Ok(tree);
        }
        if self.resource.converter().is_some() {
            return Err(self.failed(&self.from.kind, "failed: it was not asked"));
        }
        by_strategy(&*self.resource.strategy, self.schema, tree, self.from, self.to).map_err(Status::internal)
    }
    /// Asks a converter, whose answer must fit the question. `kind` names what is asked for in errors.
    async fn ask(
        self,
        converter: &dyn Converter,
        trees: Vec<Struct>,
        kind: &str,
    ) -> Result<Vec<Struct>, Status> {
        let mut objects: Vec<Node> = Vec::with_capacity(trees.len());
        for (n, tree) in trees.into_iter().enumerate() {
            breathe(n).await;
            objects.push(self.object(&tree));
        }
        let limit = Instant::now() + LIMIT;
        let until = self.deadline.map_or(limit, |deadline| deadline.min(limit));
        let answer = match timeout_at(until, converter.convert(&objects, &self.to.api_version())).await {
            Ok(answer) => answer.map_err(|why| self.failed(kind, &format!("failed: {}", why.0)))?,
            Err(_) if until < limit => return Err(timed_out()),
            Err(_) => return Err(self.failed(kind, "failed: context deadline exceeded")),
        };
        if answer.len() != objects.len() {
            let why = format!("returned {} objects, expected {}", answer.len(), objects.len());
            return Err(self.failed(kind, &why));
        }
        let is_list = kind != self.from.kind || objects.len() > 1;
        let mut out = Vec::with_capacity(objects.len());
        for (i, (original, converted)) in objects.iter().zip(answer).enumerate() {
            breathe(i).await;
            let tree = self.tree(original, converted);
            out.push(tree.map_err(|bad| self.failed(kind, &bad.text(i, is_list)))?);
        }
        Ok(out)
    }
    /// The object of a tree, without a schema.
    fn object(&self, tree: &Struct) -> Node {
        let mut object = json::to_any(self.schema, tree);
        if let Some(map) = object.as_map_mut() {
            map.insert("apiVersion", self.from.api_version());
            map.insert("kind", self.from.kind.clone());
        }
        object
    }
    /// The tree of what a converter made of an object.
    fn tree(&self, original: &Node, converted: Node) -> Result<Struct, Bad> {
        let root =
            self.schema.kind(self.to).ok_or_else(|| Bad::Object("its version is not served".into()))?;
        let restored = restored(original, converted, self.to)?;
        let decoded = json::root_from_any(self.schema, root, restored);
        Ok(decoded.map_err(|e| Bad::Object(e.to_string()))?.tree)
    }
    /// Upstream's error: a 500 without a reason.
    fn failed(&self, kind: &str, why: &str) -> Status {
        Status::failure(500, "", format!("conversion webhook for {} {why}", go_kind(self.from, kind)))
    }
}

/// Lets others have their turn now and then: objects may be large.
async fn breathe(n: usize) {
    if n % 8 == 7 {
        tokio::task::yield_now().await;
    }
}

/// A kind as Go prints it.
fn go_kind(version: &Gvk, kind: &str) -> String {
    format!("{}/{}, Kind={kind}", version.group, version.version)
}

/// Converts a tree by a kind's strategy.
pub(crate) fn by_strategy(
    strategy: &dyn Strategy,
    schema: &Schema,
    tree: Struct,
    from: &Gvk,
    to: &Gvk,
) -> Result<Struct, NoConversion> {
    strategy.convert(schema, tree, from, to)
}
