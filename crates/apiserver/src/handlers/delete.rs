//! Deletions: immediate, graceful, held by finalizers; collections.

use std::sync::Arc;

use access::admission::{DeleteOptions, Operation, OperationOptions, Propagation};
use api::status::Details;
use api::view::View;
use api::{Object, Status, Struct};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use kinds::strategy::Dependents;
use storage::{Write, WriteError};

use super::scope::Scope;
use super::{list, unreadable};
use crate::catalog;
use crate::codec;
use crate::negotiate;
use crate::objects::time_text;
use crate::options::{
    self, ListOptions, delete_options_of_query, delete_options_of_tree, unreadable_option_error,
};
use crate::outcome::Outcome;

/// How many objects of a collection are deleted at a time. DIFFERENCE: upstream's `--delete-collection-workers` is one.
const DELETIONS: usize = 16;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// The finalizers by which the garbage collector learns what to do with dependents.
fn finalizers(has: &[&str], options: &DeleteOptions, default: Dependents) -> Vec<String> {
    let first = has.iter().find(|f| matches!(**f, ORPHAN | FOREGROUND)).copied();
    let orphan = default != Dependents::Unsupported
        && match (options.orphan_dependents, options.propagation) {
            (Some(orphan), _) => orphan,
            (None, Some(policy)) => policy == Propagation::Orphan,
            (None, None) => match first {
                Some(f) => f == ORPHAN,
                None => default == Dependents::Orphan,
            },
        };
    let foreground = default != Dependents::Unsupported
        && match (options.orphan_dependents, options.propagation) {
            (Some(_), _) => false,
            (None, Some(policy)) => policy == Propagation::Foreground,
            (None, None) => first == Some(FOREGROUND),
        };
    let mut wanted: Vec<String> =
        has.iter().filter(|f| !matches!(**f, ORPHAN | FOREGROUND)).map(|f| (*f).to_owned()).collect();
    if orphan {
        wanted.push(ORPHAN.into());
    }
    if foreground {
        wanted.push(FOREGROUND.into());
    }
    wanted
}

/// The decision of graceful deletion about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Grace {
    /// The kind knows no grace, or it is over.
    None,
    /// It is under way, and nothing changes.
    Pending,
    /// It begins, or is shortened: these go into metadata, and the deletion ends by itself if the
    /// period is zero.
    Set { deleted: String, period: i64, first: bool },
}

/// The state of an object that [`grace`] looks at.
struct Now<'a> {
    deleted: &'a str,
    grace: Option<i64>,
    /// Seconds that the object asks for.
    default: i64,
    /// It goes at once.
    at_once: bool,
}

/// Upstream's `BeforeDelete` with the Pods' `CheckGracefulDelete`.
fn grace(now: &Now<'_>, wanted: Option<i64>, clock: Timestamp) -> Grace {
    let wanted = wanted.map(|w| if w < 0 { 1 } else { w });
    if now.deleted.is_empty() {
        let mut period = wanted.unwrap_or(now.default);
        if now.at_once {
            period = 0;
        }
        if period < 0 {
            period = 1;
        }
        return Grace::Set { deleted: later(clock, period), period, first: true };
    }
    let Some(has) = now.grace.filter(|g| *g != 0) else { return Grace::None };
    let Some(mut period) = wanted.filter(|w| *w < has) else { return Grace::Pending };
    let started = now.deleted.parse::<Timestamp>().unwrap_or(clock);
    let mut at = started.checked_add(SignedDuration::from_secs(period.saturating_sub(has))).unwrap_or(clock);
    if at < clock {
        at = clock;
        if period != 0 {
            period = 1;
        }
    }
    Grace::Set { deleted: time_text(at), period, first: false }
}

fn later(clock: Timestamp, seconds: i64) -> String {
    time_text(clock.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX))
}

fn read_options(scope: &Scope<'_>) -> Result<DeleteOptions, Status> {
    let req = scope.req;
    let unsafe_deletion = scope.enabled(catalog::unreadable::GATE);
    if req.body.is_empty() {
        return delete_options_of_query(&req.query, unsafe_deletion);
    }
    let format = negotiate::input(&req.content_type)?;
    let tree = codec::delete_options(scope.catalog.schema(), format, &req.body)?;
    delete_options_of_tree(View::new(scope.catalog.schema(), &tree), unsafe_deletion)
}

pub(crate) async fn delete(scope: &Scope<'_>) -> Result<Outcome, Status> {
    let options = read_options(scope)?;
    if options.ignore_read_error {
        return unreadable::delete(scope).await;
    }
    let mut outcome = one(scope, scope.name(), &options, Some(scope.name())).await?;
    if let (Outcome::Stored { status, object, .. }, Some(false)) = (&mut outcome, options.orphan_dependents)
        && object.data.finalizers
    {
        *status = 202;
    }
    Ok(outcome)
}

impl Scope<'_> {
    /// Asks admission about the deletion of an object, under the name that it is told.
    pub(super) async fn admit_delete(
        &self,
        name: &str,
        object: &Struct,
        options: &DeleteOptions,
    ) -> Result<(), Status> {
        let mut request =
            self.admission(Operation::Delete, &self.stored.kind, name, Some(object), options.dry_run);
        request.options = OperationOptions::delete(options);
        self.handlers.admission.validate(&request, None).await
    }
}

/// Deletes one object. Admission is asked about each state of it that may be the last, under the name that it is to be
/// told, if it is asked at all.
pub(crate) async fn one(
    scope: &Scope<'_>,
    name: &str,
    options: &DeleteOptions,
    told: Option<&str>,
) -> Result<Outcome, Status> {
    if let Some(lifecycle) = scope.lifecycle
        && let Some(outcome) = lifecycle.delete(scope, name, options).await?
    {
        return Ok(outcome);
    }
    loop {
        let object = scope.find(name)?;
        let mut tree = scope.tree(&object).await?;
        check_preconditions(scope, &object, options)?;
        if let Some(told) = told {
            scope.admit_delete(told, &tree, options).await?;
        }
        let meta = scope.meta(&tree);
        let asked = scope.strategy().grace(scope.catalog.schema(), &tree);
        let graceful = asked.map_or(Grace::None, |asked| {
            let now = Now {
                deleted: meta.deleted(),
                grace: meta.grace().map(|g| if g < 0 { 1 } else { g }),
                default: asked.default,
                at_once: asked.at_once,
            };
            grace(&now, options.grace, scope.handlers.objects.clock.now())
        });
        if graceful == Grace::Pending {
            return deleted_answer(scope, &object);
        }
        let has: Vec<String> = meta.finalizers().iter().map(|f| (*f).to_owned()).collect();
        let has: Vec<&str> = has.iter().map(String::as_str).collect();
        // Finalizers that nobody takes away must not be set.
        let collected = scope.handlers.garbage_collector;
        let wanted = if collected {
            finalizers(&has, options, scope.facts().deletion.dependents)
        } else {
            has.iter().map(|f| (*f).to_owned()).collect()
        };
        if graceful != Grace::None || !wanted.is_empty() {
            let period = mark(scope, &mut tree, &graceful, &wanted)?;
            if options.dry_run {
                return scope.dry_answer(200, tree).await;
            }
            let new = scope.new_object(tree.clone()).await?;
            if new.body == object.data.body {
                if !wanted.is_empty() || period > 0 {
                    return Ok(scope.stored_answer(200, object));
                }
            } else {
                let mark = Write::Update {
                    resource: scope.stored.id,
                    object: new,
                    expect: object.revision,
                    ttl: None,
                };
                let stays = !wanted.is_empty() || period > 0;
                let marked = if stays {
                    scope.commit(mark).await.map(|marked| (marked, None))
                } else {
                    scope.commit_and_remove(mark).await.map(|(marked, removed)| (marked, Some(removed)))
                };
                match marked {
                    Ok((marked, None)) => return Ok(scope.stored_answer(200, marked)),
                    Ok((_, Some(Ok(gone)))) => {
                        scope.deleted(&tree).await;
                        return deleted_answer(scope, &gone);
                    }
                    Ok((marked, Some(Err(WriteError::NotFound)))) => return deleted_answer(scope, &marked),
                    Err(WriteError::Changed(_)) | Ok((_, Some(Err(WriteError::Changed(_))))) => continue,
                    Err(e) | Ok((_, Some(Err(e)))) => return Err(scope.write_error(&e, name)),
                }
            }
        }
        if options.dry_run {
            return if scope.facts().deletion.answers_object {
                scope.dry_answer(200, tree).await
            } else {
                deleted_answer(scope, &object)
            };
        }
        let write = Write::Delete {
            resource: scope.stored.id,
            namespace: object.data.namespace.clone(),
            name: object.data.name.clone(),
            expect: object.revision,
        };
        match scope.commit(write).await {
            Ok(gone) => {
                scope.deleted(&tree).await;
                return deleted_answer(scope, &gone);
            }
            Err(WriteError::Changed(_)) => {}
            Err(e) => return Err(scope.write_error(&e, name)),
        }
    }
}

/// Writes into metadata that the object goes, and how; the seconds it has left.
fn mark(scope: &Scope<'_>, tree: &mut Struct, graceful: &Grace, wanted: &[String]) -> Result<i64, Status> {
    let now = scope.now.clone();
    let mut meta = scope.meta_mut(tree)?;
    meta.set_finalizers(&wanted.iter().map(String::as_str).collect::<Vec<_>>());
    let generation = meta.read().generation();
    let first = !meta.read().deleting();
    match graceful {
        Grace::Set { deleted, period, first } => {
            meta.set_deleted(deleted);
            meta.set_grace(Some(*period));
            if *first && generation > 0 {
                meta.set_generation(generation + 1);
            }
            Ok(*period)
        }
        Grace::None | Grace::Pending => {
            if first && generation > 0 {
                meta.set_generation(generation + 1);
            }
            let at = meta.read().deleted();
            if at.is_empty() || at > now.as_str() {
                meta.set_deleted(&now);
            }
            meta.set_grace(Some(0));
            Ok(0)
        }
    }
}

fn check_preconditions(scope: &Scope<'_>, object: &Object, options: &DeleteOptions) -> Result<(), Status> {
    let revision = object.revision.to_string();
    preconditions(scope, &object.data.name, &object.data.uid, &revision, options)
}

/// Refuses another object than the one that is meant.
pub(super) fn preconditions(
    scope: &Scope<'_>,
    name: &str,
    uid: &str,
    revision: &str,
    options: &DeleteOptions,
) -> Result<(), Status> {
    let conflict =
        |why: String| Status::conflict(&scope.resource.group, &scope.resource.kind.kind, name, why);
    if let Some(wanted) = &options.uid
        && wanted != uid
    {
        return Err(conflict(format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        )));
    }
    if let Some(wanted) = &options.resource_version
        && wanted != revision
    {
        return Err(conflict(format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({revision}). The object might have been modified"
        )));
    }
    Ok(())
}

fn deleted_answer(scope: &Scope<'_>, object: &Arc<Object>) -> Result<Outcome, Status> {
    if scope.facts().deletion.answers_object {
        return Ok(scope.stored_answer(200, Arc::clone(object)));
    }
    Ok(Outcome::Status(Status {
        details: Some(Box::new(Details {
            name: object.data.name.to_string(),
            group: scope.resource.group.to_string(),
            kind: scope.resource.plural.to_string(),
            uid: object.data.uid.to_string(),
            ..Details::default()
        })),
        // Upstream leaves the code out here.
        code: 0,
        ..Status::success()
    }))
}

/// Deletes an object of a collection, which may be gone already.
fn member<'s>(
    scope: &'s Scope<'_>,
    object: &'s Object,
    options: &'s DeleteOptions,
) -> BoxFuture<'s, Result<(), Status>> {
    let item = Scope { namespace: &object.data.namespace, now: scope.handlers.objects.now(), ..*scope };
    // As upstream, which tells admission the request's name.
    let deletion = async move { one(&item, &object.data.name, options, Some("")).await };
    deletion
        .map(|ended| ended.map(|_| ()).or_else(|e| if e.is_not_found() { Ok(()) } else { Err(e) }))
        .boxed()
}

/// Deletes the objects of a collection: several at a time, since the store writes at once what comes together. After an
/// error no further deletion begins.
async fn members(scope: &Scope<'_>, all: &[Arc<Object>], options: &DeleteOptions) -> Result<(), Status> {
    let mut waiting = all.iter();
    let mut under_way = FuturesUnordered::new();
    let mut result = Ok(());
    loop {
        while result.is_ok()
            && under_way.len() < DELETIONS
            && let Some(object) = waiting.next()
        {
            under_way.push(member(scope, object, options));
        }
        match under_way.next().await {
            Some(ended) => result = result.and(ended),
            None => return result,
        }
    }
}

/// Deletes what a list selects and answers with that list.
pub(crate) async fn collection(scope: &Scope<'_>) -> Result<Outcome, Status> {
    let mut selection = ListOptions::from_query(&scope.req.query, false)?;
    selection.watch = false;
    let options = read_options(scope)?;
    if options.ignore_read_error {
        let why = "is not allowed with DELETECOLLECTION, try again after removing the option";
        return Err(Status::invalid(options::META, "DeleteOptions", "", &[unreadable_option_error(why)]));
    }
    let found = list::select(scope, &selection).await?;
    members(scope, &found.items, &options).await?;
    Ok(Outcome::List(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn graceful_deletion() {
        let clock = at("2026-01-01T00:00:00Z");
        let fresh = |at_once| Now { deleted: "", grace: None, default: 30, at_once };
        let set = |deleted: &str, period, first| Grace::Set { deleted: deleted.into(), period, first };
        assert_eq!(grace(&fresh(false), None, clock), set("2026-01-01T00:00:30Z", 30, true));
        assert_eq!(grace(&fresh(false), Some(5), clock), set("2026-01-01T00:00:05Z", 5, true));
        assert_eq!(grace(&fresh(false), Some(-1), clock), set("2026-01-01T00:00:01Z", 1, true));
        assert_eq!(grace(&fresh(true), Some(5), clock), set("2026-01-01T00:00:00Z", 0, true));
        let going = Now { deleted: "2026-01-01T00:00:20Z", grace: Some(30), default: 30, at_once: false };
        assert_eq!(grace(&going, None, clock), Grace::Pending);
        assert_eq!(grace(&going, Some(30), clock), Grace::Pending);
        assert_eq!(grace(&going, Some(20), clock), set("2026-01-01T00:00:10Z", 20, false));
        assert_eq!(grace(&going, Some(5), clock), set("2026-01-01T00:00:00Z", 1, false));
        assert_eq!(grace(&going, Some(0), clock), set("2026-01-01T00:00:00Z", 0, false));
        let over = Now { deleted: "2026-01-01T00:00:20Z", grace: Some(0), default: 30, at_once: false };
        assert_eq!(grace(&over, None, clock), Grace::None);
    }

    #[test]
    fn dependents() {
        let none = DeleteOptions::default();
        let by = |p| DeleteOptions { propagation: Some(p), ..DeleteOptions::default() };
        assert_eq!(finalizers(&["a"], &none, Dependents::Background), ["a"]);
        assert_eq!(finalizers(&["a"], &none, Dependents::Orphan), ["a", "orphan"]);
        assert_eq!(
            finalizers(&["orphan"], &by(Propagation::Foreground), Dependents::Orphan),
            ["foregroundDeletion"]
        );
        assert!(finalizers(&[FOREGROUND], &by(Propagation::Background), Dependents::Background).is_empty());
        assert!(finalizers(&[], &by(Propagation::Orphan), Dependents::Unsupported).is_empty());
        let orphan = DeleteOptions { orphan_dependents: Some(true), ..DeleteOptions::default() };
        assert_eq!(finalizers(&[], &orphan, Dependents::Background), ["orphan"]);
    }
}
