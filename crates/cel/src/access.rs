//! What an expression asks the authorizer, and the answers. An expression cannot wait, so it ends with a question and is
//! evaluated again when the answer is there: expressions are pure.

/// The user for whom a question is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Subject {
    /// The user of the request.
    #[default]
    User,
    /// A service account.
    ServiceAccount {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// A resource that is asked about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ResourceCheck {
    /// The user.
    pub subject: Subject,
    /// The API group; the version is any.
    pub group: String,
    /// The plural name of the resource.
    pub resource: String,
    /// The subresource, or "".
    pub subresource: String,
    /// The namespace, or "".
    pub namespace: String,
    /// The object's name, or "".
    pub name: String,
    /// A field selector as the expression has it, or "".
    pub field_selector: String,
    /// A label selector as the expression has it, or "".
    pub label_selector: String,
}

/// A question to the authorizer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Question {
    /// May the user do this with a path that is no resource?
    Path {
        /// The user.
        subject: Subject,
        /// The path.
        path: String,
        /// The method, in lower case.
        verb: String,
    },
    /// May the user do this with a resource?
    Resource {
        /// The resource.
        check: ResourceCheck,
        /// The verb.
        verb: String,
    },
}

/// The authorizer's answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// Whether the user may.
    pub allowed: bool,
    /// The reason that the authorizer gave.
    pub reason: String,
    /// The error that the authorizer met.
    pub error: Option<String>,
}
