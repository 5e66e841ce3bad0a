//! AlwaysPullImages: no Pod runs an image that its node has because another one was allowed to pull it.

use std::collections::HashSet;

use api::status::{FieldError, FieldErrorKind};
use api::view::{Edit, View};
use api::{Status, Struct};

use super::plugin::{Env, Plugin};
use super::{AdmissionRequest, Operation};

const ALWAYS: &str = "Always";
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

#[derive(Default)]
pub(super) struct AlwaysPullImages;

fn images<'a>(pod: &View<'a>) -> HashSet<&'a str> {
    let spec = pod.st("spec");
    LISTS.iter().flat_map(|list| spec.items(list)).map(|container| container.str("image")).collect()
}

fn is_concerned(env: &Env, request: &AdmissionRequest<'_>, object: &Struct) -> bool {
    if !request.is("", "pods") {
        return false;
    }
    match (request.operation, request.old) {
        (Operation::Create, _) | (Operation::Update, None) => true,
        (Operation::Update, Some(old)) => !images(&env.view(object)).is_subset(&images(&env.view(old))),
        _ => false,
    }
}

impl Plugin for AlwaysPullImages {
    fn mutate(&self, env: &Env, request: &AdmissionRequest<'_>, object: &mut Struct) -> Result<(), Status> {
        if !is_concerned(env, request, object) {
            return Ok(());
        }
        let mut pod = Edit::new(env.schema, object);
        let Some(mut spec) = pod.at("spec") else { return Ok(()) };
        for list in LISTS {
            for mut container in spec.items(list) {
                container.set("imagePullPolicy", ALWAYS);
            }
        }
        for mut volume in spec.items("volumes") {
            if let Some(mut image) = volume.at("image") {
                image.set("pullPolicy", ALWAYS);
            }
        }
        Ok(())
    }

    fn validate(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
    ) -> Result<(), Status> {
        let Some(object) = object.filter(|object| is_concerned(env, request, object)) else { return Ok(()) };
        let spec = env.view(object).st("spec");
        let mut wrong: Vec<(String, &str)> = Vec::new();
        for list in LISTS {
            for (i, container) in spec.items(list).enumerate() {
                wrong.push((format!("spec.{list}[{i}].imagePullPolicy"), container.str("imagePullPolicy")));
            }
        }
        for (i, volume) in spec.items("volumes").enumerate() {
            if let Some(image) = volume.opt("image") {
                wrong.push((format!("spec.volumes[{i}].image.pullPolicy"), image.str("pullPolicy")));
            }
        }
        wrong.retain(|(_, policy)| *policy != ALWAYS);
        let refused = |(field, policy): &(String, &str)| {
            let why = FieldError {
                kind: FieldErrorKind::NotSupported,
                field: field.clone(),
                value: Some(api::go::quote(policy)),
                detail: format!("supported values: {}", api::go::quote(ALWAYS)),
            };
            request.forbidden(Some(object), why)
        };
        match wrong.as_slice() {
            [] => Ok(()),
            [one] => Err(refused(one)),
            many => {
                let mut texts: Vec<String> = many.iter().map(|w| refused(w).message).collect();
                texts.dedup();
                Err(Status::failure(500, "", format!("[{}]", texts.join(", "))))
            }
        }
    }
}
