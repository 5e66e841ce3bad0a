//! The node ports that are in use, as the store has them: one object for all servers, upstream's
//! `ranges/servicenodeports`, which is changed by comparing its revision.

use std::ops::RangeInclusive;
use std::sync::Arc;

use access::reader::Reader;
use api::view::{Edit, View};
use api::{NewObject, Object, Status, Struct};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use storage::{Write, WriteError};
use tokio::sync::Mutex;

use super::ranges::PortSet;
use super::service::node_ports;
use crate::catalog::Stored;
use crate::catalog::meta::Meta;
use crate::codec;
use crate::objects::Objects;

/// The resource's name, by which `--encryption-provider-config` knows it.
pub(crate) const PLURAL: &str = "servicenodeportallocations";
/// The object's name.
const NAME: &str = "servicenodeports";
/// How often a change is tried that others were faster than.
const TRIES: usize = 1000;

/// The ports that are in use, for all servers.
pub(crate) struct Ports {
    range: RangeInclusive<u16>,
    objects: Arc<Objects>,
    resource: Stored,
    meta: Meta,
    /// Those of this server take turns; only other servers are met in the store.
    turn: Mutex<()>,
}

impl Ports {
    pub(crate) fn new(range: RangeInclusive<u16>, objects: Arc<Objects>) -> Result<Self, String> {
        let schema = objects.schema();
        let lacks = || "the schema lacks RangeAllocation".to_owned();
        let strategy = kinds::strategy("", PLURAL);
        let storage = strategy.facts().storage.clone().ok_or_else(lacks)?;
        let root = schema.kind(&storage.kind).ok_or_else(lacks)?;
        let resource = Stored::new((schema, root), &objects.store, storage, PLURAL, &strategy)?;
        let meta = Meta::new(schema).ok_or_else(lacks)?;
        Ok(Self { range, objects, resource, meta, turn: Mutex::default() })
    }

    /// The range that is configured.
    pub(super) fn range(&self) -> &RangeInclusive<u16> {
        &self.range
    }

    /// The object as the store has it.
    pub(super) fn stored(&self) -> Option<Arc<Object>> {
        self.objects.store.get(self.resource.id, "", NAME)
    }

    /// The ports that an object names as taken.
    pub(super) fn read(&self, object: &Object) -> Result<PortSet, Status> {
        let tree = codec::stored(self.objects.schema(), self.resource.root, object)?;
        let view = View::new(self.objects.schema(), &tree);
        let data = BASE64.decode(view.str("data")).map_err(Status::internal)?;
        PortSet::parse(view.str("range"), &data)
            .ok_or_else(|| Status::internal(format!("the port range {:?} is not valid", view.str("range"))))
    }

    /// The object for these ports, in place of one that is there.
    fn object(&self, set: &PortSet, old: Option<&Object>) -> Result<NewObject, Status> {
        let schema = self.objects.schema();
        let mut tree = match old {
            Some(old) => codec::stored(schema, self.resource.root, old)?,
            None => Struct::new(self.resource.root),
        };
        let mut edit = Edit::new(schema, &mut tree);
        edit.make("metadata");
        edit.set("range", set.range());
        edit.set("data", BASE64.encode(set.data()));
        let Stored { strategy, meta_at, .. } = &self.resource;
        let object = self.meta.at_rest(schema, &**strategy, *meta_at, tree, 0)?;
        // Upstream's object has no name but its key.
        Ok(NewObject { name: NAME.into(), ..object })
    }

    /// Puts these ports in the place of what was read; `Ok(false)` if somebody was faster.
    pub(super) async fn replace(&self, read: Option<&Object>, set: &PortSet) -> Result<bool, Status> {
        let object = self.object(set, read)?;
        let resource = self.resource.id;
        let write = match read {
            Some(old) => Write::Update { resource, object, expect: old.revision, ttl: None },
            None => Write::Create { resource, object, ttl: None },
        };
        match self.objects.store.commit(write).await {
            Ok(_) => Ok(true),
            Err(WriteError::Changed(_) | WriteError::Exists(_) | WriteError::NotFound) => Ok(false),
            Err(e) => Err(Status::internal(format!("unable to persist the updated port allocations: {e}"))),
        }
    }

    /// The ports that are taken now; those of the stored Services if there is no object yet.
    fn read_or_count(&self) -> Result<(Option<Arc<Object>>, PortSet), Status> {
        let Some(object) = self.stored() else { return Ok((None, self.counted())) };
        let set = self.read(&object)?;
        if set.range() != PortSet::new(&self.range).range() {
            return Err(Status::internal("the provided port range does not match the current port range"));
        }
        Ok((Some(object), set))
    }

    fn counted(&self) -> PortSet {
        let mut set = PortSet::new(&self.range);
        for object in self.objects.list(("", "services"), "") {
            if let Ok(tree) = self.objects.tree("", "services", &object) {
                for port in node_ports(&View::new(self.objects.schema(), &tree)) {
                    // Two may have the same, or one outside of the range: the repair tells.
                    let _ = set.take(port);
                }
            }
        }
        set
    }

    /// The ports that are taken now.
    pub(crate) async fn current(&self) -> Result<PortSet, Status> {
        self.fresh().await?;
        Ok(self.read_or_count()?.1)
    }

    /// Returns once what is taken, and the Services that it is counted from, are as etcd has them.
    pub(super) async fn fresh(&self) -> Result<(), Status> {
        let services = self.objects.id(("", "services"));
        let resources: Vec<_> = [self.resource.id].into_iter().chain(services).collect();
        self.objects.store.fresh(&resources).await.map_err(Status::internal)
    }

    /// Changes which are taken. `change` is asked again when another server was faster, and before it may refuse
    /// anything for what that server did.
    pub(crate) async fn change<T>(
        &self,
        change: impl Fn(&mut PortSet) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let _turn = self.turn.lock().await;
        let mut fresh = false;
        for _ in 0..TRIES {
            let (object, before) = self.read_or_count()?;
            let mut set = before.clone();
            match change(&mut set) {
                Ok(done) if object.is_some() && set == before => return Ok(done),
                Ok(done) => {
                    if self.replace(object.as_deref(), &set).await? {
                        return Ok(done);
                    }
                }
                Err(refused) if fresh => return Err(refused),
                Err(_) => {
                    self.fresh().await?;
                    fresh = true;
                    continue;
                }
            }
            fresh = false;
        }
        Err(Status::internal("cannot allocate node ports at this time: other servers are faster"))
    }

    /// Gives ports back; what cannot be given back now the repair finds.
    pub(crate) async fn release(&self, ports: &[i64]) {
        if ports.is_empty() {
            return;
        }
        let released = self.change(|set| {
            for port in ports {
                set.release(*port);
            }
            Ok(())
        });
        if let Err(error) = released.await {
            tracing::warn!(?ports, %error, "cannot release node ports");
        }
    }
}
