//! Creates.

use access::admission::Operation;
use api::{Status, Struct};
use storage::{Write, WriteError};

use super::managed;
use super::scope::{Failed, Scope};
use crate::options::{WriteKind, WriteOptions, write_options};
use crate::outcome::Outcome;
use crate::routes::method_not_allowed;

/// Names are made anew so many times when they are taken; upstream's number.
const GENERATE_ATTEMPTS: usize = 8;
/// Characters of generated suffixes: no vowels, so that no words appear.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A name from a prefix: the prefix, cut to 58 bytes, and five random characters.
pub(crate) fn generate_name(prefix: &str) -> String {
    let mut end = prefix.len().min(58);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = prefix[..end].to_owned();
    for _ in 0..5 {
        name.push(ALPHABET[fastrand::usize(..ALPHABET.len())] as char);
    }
    name
}

pub(crate) async fn create(scope: &Scope<'_>) -> Result<Outcome, Status> {
    let options = write_options(&scope.req.query, WriteKind::Create)?;
    let mut tree = scope.body(&options).await?;
    if scope.resource.namespaced && scope.namespace.is_empty() {
        // The path without a namespace takes what the object says, as upstream's legacy route did.
        return Err(method_not_allowed());
    }
    scope.meta_mut(&mut tree)?.wipe_system_fields();
    scope.ensure_namespace(&mut tree)?;
    scope.dedup_owners(&mut tree, false)?;
    managed::track_update(scope, None, &mut tree, &options).await?;
    admit_and_store(scope, tree, &options).await
}

/// Admission and storage of a new object; also for what an update or an apply creates.
pub(crate) async fn admit_and_store(
    scope: &Scope<'_>,
    mut tree: Struct,
    options: &WriteOptions,
) -> Result<Outcome, Status> {
    let name = scope.meta(&tree).name().to_owned();
    let request = scope.admission(Operation::Create, &scope.stored.kind, &name, None, options.dry_run);
    scope.handlers.admission.mutate(&request, &mut tree).await?;
    scope.dedup_owners(&mut tree, true)?;
    scope.bounded(&tree)?;
    let generated = name.is_empty() && !scope.meta(&tree).generate_name().is_empty();
    if generated {
        for _ in 1..GENERATE_ATTEMPTS {
            match store(scope, tree.clone(), options, generated).await {
                Err(e) if e.is_already_exists() => {}
                other => return other,
            }
        }
    }
    store(scope, tree, options, generated).await
}

/// Fills what the server sets, checks, and stores.
pub(crate) async fn store(
    scope: &Scope<'_>,
    mut tree: Struct,
    options: &WriteOptions,
    generated: bool,
) -> Result<Outcome, Status> {
    {
        let mut meta = scope.meta_mut(&mut tree)?;
        meta.set_created(&scope.now);
        meta.set_uid(&uuid::Uuid::new_v4().to_string());
        if meta.read().name().is_empty() && !meta.read().generate_name().is_empty() {
            let name = generate_name(meta.read().generate_name());
            meta.set_name(&name);
        }
        // A dry run answers the resourceVersion as it was sent.
        if !options.dry_run {
            meta.set_resource_version("");
        }
    }
    let reservation = match scope.lifecycle {
        Some(lifecycle) => lifecycle.begin_create(scope, &mut tree, options.dry_run).await?,
        None => None,
    };
    let stored = store_filled(scope, tree, options, generated).await;
    if let Some(reservation) = reservation {
        match &stored {
            Ok(_) => reservation.keep().await,
            Err(failed) => reservation.fail(failed.doubtful).await,
        }
    }
    stored.map_err(|failed| failed.status)
}

/// Checks what is filled, and stores it.
async fn store_filled(
    scope: &Scope<'_>,
    mut tree: Struct,
    options: &WriteOptions,
    generated: bool,
) -> Result<Outcome, Failed> {
    let (catalog, handlers) = (scope.catalog, scope.handlers);
    if scope.resource.custom.as_ref().is_some_and(|custom| custom.terminating) {
        let why = "create not allowed while custom resource definition is terminating";
        let (group, plural) = (&scope.resource.group, &scope.resource.plural);
        return Err(Status::forbidden(group, plural, scope.meta(&tree).name(), why).into());
    }
    scope.ensure_namespace(&mut tree)?;
    let strategy = scope.strategy();
    let warn = |text: String| scope.req.warn(text);
    let ctx = scope.ctx(&warn);
    catalog.gated.strip(&mut tree, None);
    strategy.prepare_create(&ctx, &mut tree);
    let mut errors = strategy.validate(&ctx, &tree);
    if errors.is_empty() {
        errors = kinds::validation::meta::common_create(catalog.schema(), &tree, scope.resource.namespaced);
    }
    if !errors.is_empty() {
        let name = scope.meta(&tree).name();
        return Err(scope.invalid(name, &errors).into());
    }
    strategy.canonicalize(&ctx, &mut tree);
    for text in strategy.warnings(&ctx, &tree, None) {
        scope.req.warn(text);
    }
    // A dry run has no effect by itself.
    if let Some(text) = scope.facts().no_effect_yet.as_ref().filter(|_| !options.dry_run) {
        scope.req.warn(text.to_string());
    }
    let name = scope.meta(&tree).name().to_owned();
    let request = scope.admission(Operation::Create, &scope.stored.kind, &name, None, options.dry_run);
    handlers.admission.validate(&request, Some(&tree)).await?;
    if options.dry_run {
        if let Some(existing) = handlers.objects.store.get(scope.stored.id, scope.namespace, &name) {
            return Err(taken(scope, &name, generated, existing.data.deleting).into());
        }
        if scope.readable(&name).is_err() {
            return Err(taken(scope, &name, generated, false).into());
        }
        return Ok(scope.dry_answer(201, tree).await?);
    }
    let object = scope.new_object(tree).await?;
    let write = Write::Create { resource: scope.stored.id, object, ttl: scope.ttl() };
    match scope.commit(write).await {
        Ok(object) => Ok(scope.stored_answer(201, object)),
        Err(WriteError::Exists(existing)) => {
            Err(taken(scope, &name, generated, existing.data.deleting).into())
        }
        Err(WriteError::Unreadable(_)) => Err(taken(scope, &name, generated, false).into()),
        Err(e) => Err(Failed::of(scope, &e, &name)),
    }
}

fn taken(scope: &Scope<'_>, name: &str, generated: bool, deleting: bool) -> Status {
    let (group, plural) = (&scope.resource.group, &scope.resource.plural);
    let mut status = Status::already_exists(group, plural, name);
    if generated {
        status.message = format!(
            "{} {name:?} already exists, the server was not able to generate a unique name for the object",
            api::status::qualified(group, plural)
        );
        if let Some(d) = &mut status.details {
            d.retry_after_seconds = 1;
        }
    }
    if deleting {
        status.message = format!("object is being deleted: {}", status.message);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names() {
        let name = generate_name("web-");
        assert!(name.starts_with("web-") && name.len() == 9);
        assert_eq!(generate_name(&"x".repeat(80)).len(), 63);
        assert_ne!(generate_name("a"), generate_name("a"));
    }
}
