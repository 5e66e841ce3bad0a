//! The versions of a request's resource for admission, from the catalog of the request.

use access::admission::{Equivalent, Versions};
use access::auth::Eventual;
use api::codec::json;
use api::schema::Gvk;
use api::{Node, Schema, Struct, Text};
use futures::FutureExt;
use kinds::custom::Definition;

use crate::catalog::conversion::Conversion;
use crate::request::Request;

impl Versions for Request {
    fn schema(&self) -> &Schema {
        self.catalog.schema()
    }

    fn equivalents(&self) -> Vec<Equivalent> {
        let Some(own) = &self.resource else { return Vec::new() };
        let subresource = &*self.info.subresource;
        if let Some(definition) = self.catalog.resources.definition(own) {
            return of_definition(definition, subresource);
        }
        let alike = self.catalog.resources.alike(own);
        let found = alike.filter_map(|resource| {
            let kind = match subresource {
                "" => resource.kind.clone(),
                // The object's own kind is named in one version, which may be another.
                name => match resource.subresource(name)? {
                    sub if sub.kind.group == resource.group && sub.kind.kind == resource.kind.kind => {
                        resource.kind.clone()
                    }
                    sub => sub.kind.clone(),
                },
            };
            let (group, version) = (resource.group.clone(), resource.version.clone());
            Some(Equivalent { group, version, resource: resource.plural.clone(), kind })
        });
        found.collect()
    }

    fn convert<'a>(
        &'a self,
        tree: Struct,
        from: &'a Gvk,
        to: &'a Gvk,
    ) -> Eventual<'a, Result<Struct, String>> {
        if from == to {
            return Eventual::Now(Ok(tree));
        }
        let Some(resource) = &self.resource else {
            return Eventual::Now(Err(format!("unable to convert to {}: unknown kind", to.kind)));
        };
        let conversion = Conversion { schema: self.schema(), resource, from, to, deadline: self.deadline };
        match conversion.one(tree) {
            Eventual::Now(tree) => Eventual::Now(tree.map_err(|e| e.message)),
            Eventual::Later(tree) => Eventual::Later(tree.map(|t| t.map_err(|e| e.message)).boxed()),
        }
    }

    fn tree(&self, kind: &Gvk, value: Node, strict: bool) -> Result<Struct, String> {
        let schema = self.schema();
        let root = schema.kind(kind).ok_or_else(|| format!("unknown kind {}", kind.kind))?;
        let decoded = json::root_from_patched(schema, root, value).map_err(|e| e.to_string())?;
        if strict && !decoded.strict.is_empty() {
            return Err(format!("strict decoding error: {}", decoded.strict.join(", ")));
        }
        let mut tree = decoded.tree;
        // The body of a subresource may be of another kind than the resource's.
        let own = self.resource.as_ref().filter(|r| r.group == kind.group && r.kind.kind == kind.kind);
        if let Some(resource) = own {
            resource.strategy.settle(schema, &mut tree)?;
        }
        self.catalog.resources.defaults.apply(schema, &mut tree);
        Ok(tree)
    }
}

/// The versions of a definition's resource, or of a part of it: all of them, served or not, as the definition has them.
fn of_definition(definition: &Definition, subresource: &str) -> Vec<Equivalent> {
    let of = |name: &Text| {
        let version = definition.versions.iter().find(|v| v.name == *name)?;
        let own = || Gvk::new(&definition.group, name, &definition.names.kind);
        let kind = match subresource {
            "" => own(),
            "status" if version.status => own(),
            "scale" if version.scale.is_some() => Gvk::new("autoscaling", "v1", "Scale"),
            _ => return None,
        };
        let (group, resource) = (definition.group.clone(), definition.names.plural.clone());
        Some(Equivalent { group, version: name.clone(), resource, kind })
    };
    definition.order.iter().filter_map(of).collect()
}
