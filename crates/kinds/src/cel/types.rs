//! Types, and the names that an expression may use.

use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;

/// A type.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::enum_variant_names, reason = "the language has a type of types")]
pub(crate) enum Type {
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Null,
    /// A type that is known only when the expression is evaluated.
    Dyn,
    /// Like [`Type::Dyn`], but not iterable.
    Any,
    List(Box<Type>),
    Map(Box<Type>, Box<Type>),
    Optional(Box<Type>),
    /// The type of a type.
    Type(Box<Type>),
    /// A type whose inside only functions know; its name.
    Opaque(&'static str),
    /// An object whose fields the environment declares; its name.
    Object(&'static str),
    /// A parameter of a function's type.
    Param(char),
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Null => f.write_str("null"),
            Self::Dyn => f.write_str("dyn"),
            Self::Any => f.write_str("any"),
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::Type(of) => write!(f, "type({of})"),
            Self::Opaque(name) | Self::Object(name) => f.write_str(name),
            Self::Param(name) => write!(f, "{name}"),
        }
    }
}

/// A way to call a function.
#[derive(Debug)]
pub(super) struct Overload {
    /// Whether the first argument stands before the point.
    pub(super) member: bool,
    pub(super) args: Vec<Type>,
    pub(super) result: Type,
}

/// A field of an object: the object, the field, its type.
pub(crate) type Declared = (&'static str, &'static str, fn() -> Type);

/// The names that an expression may use besides the functions that all expressions have.
pub(crate) struct Env {
    /// Variables.
    pub(crate) variables: &'static [(&'static str, Type)],
    /// The fields of objects.
    pub(crate) fields: &'static [Declared],
}

/// Operators and functions: the language's own, its extensions for strings, lists, sets and optional
/// values, and Kubernetes' (`k8s.io/apiserver/pkg/cel/library`). A point before the arguments marks a
/// function of the first one. Upper case letters stand for any type, for the same one each time.
const FUNCTIONS: &str = "
_?_:_ (bool,A,A) A
_&&_ (bool,bool) bool
_||_ (bool,bool) bool
!_ (bool) bool
_==_ (A,A) bool
_!=_ (A,A) bool
@in (A,list<A>) bool; (A,map<A,B>) bool
-_ (int) int; (double) double
_[_] (list<A>,int) A; (map<A,B>,A) B; (opt<list<A>>,int) opt<A>; (opt<map<A,B>>,A) opt<B>
_[?_] (list<A>,int) opt<A>; (map<A,B>,A) opt<B>; (opt<list<A>>,int) opt<A>; (opt<map<A,B>>,A) opt<B>
_+_ (bytes,bytes) bytes; (double,double) double; (duration,duration) duration; (duration,timestamp) timestamp; (timestamp,duration) timestamp; (int,int) int; (list<A>,list<A>) list<A>; (string,string) string; (uint,uint) uint
_-_ (double,double) double; (duration,duration) duration; (int,int) int; (timestamp,duration) timestamp; (timestamp,timestamp) duration; (uint,uint) uint
_*_ (double,double) double; (int,int) int; (uint,uint) uint
_/_ (double,double) double; (int,int) int; (uint,uint) uint
_%_ (int,int) int; (uint,uint) uint
bool (bool) bool; (string) bool
bytes (bytes) bytes; (string) bytes
double (double) double; (int) double; (string) double; (uint) double
duration (duration) duration; (int) duration; (string) duration
dyn (A) dyn
int (int) int; (double) int; (duration) int; (string) int; (timestamp) int; (uint) int
string (string) string; (bool) string; (bytes) string; (double) string; (duration) string; (int) string; (timestamp) string; (uint) string; (kubernetes.URL) string; (net.IP) string; (net.CIDR) string
timestamp (timestamp) timestamp; (int) timestamp; (string) timestamp
type (A) type<A>
uint (uint) uint; (double) uint; (int) uint; (string) uint
size (bytes) int; (list<A>) int; (map<A,B>) int; (string) int; .(bytes) int; .(list<A>) int; .(map<A,B>) int; .(string) int
contains .(string,string) bool
endsWith .(string,string) bool
startsWith .(string,string) bool
matches (string,string) bool; .(string,string) bool
getFullYear .(timestamp) int; .(timestamp,string) int
getMonth .(timestamp) int; .(timestamp,string) int
getDayOfYear .(timestamp) int; .(timestamp,string) int
getDayOfMonth .(timestamp) int; .(timestamp,string) int
getDate .(timestamp) int; .(timestamp,string) int
getDayOfWeek .(timestamp) int; .(timestamp,string) int
getHours .(timestamp) int; .(timestamp,string) int; .(duration) int
getMinutes .(timestamp) int; .(timestamp,string) int; .(duration) int
getSeconds .(timestamp) int; .(timestamp,string) int; .(duration) int
getMilliseconds .(timestamp) int; .(timestamp,string) int; .(duration) int
charAt .(string,int) string
indexOf .(string,string) int; .(string,string,int) int; .(list<A>,A) int
lastIndexOf .(string,string) int; .(string,string,int) int; .(list<A>,A) int
lowerAscii .(string) string
upperAscii .(string) string
replace .(string,string,string) string; .(string,string,string,int) string
split .(string,string) list<string>; .(string,string,int) list<string>
substring .(string,int) string; .(string,int,int) string
trim .(string) string
format .(string,list<dyn>) string
strings.quote (string) string
join .(list<string>) string; .(list<string>,string) string
sets.contains (list<A>,list<A>) bool
sets.equivalent (list<A>,list<A>) bool
sets.intersects (list<A>,list<A>) bool
slice .(list<A>,int,int) list<A>
flatten .(list<list<A>>) list<A>; .(list<dyn>,int) list<dyn>
sort .(list<A>) list<A>
lists.range (int) list<int>
reverse .(list<A>) list<A>
distinct .(list<A>) list<A>
first .(list<A>) opt<A>
last .(list<A>) opt<A>
optional.of (A) opt<A>
optional.ofNonZeroValue (A) opt<A>
optional.none () opt<A>
optional.unwrap (list<opt<A>>) list<A>
unwrapOpt .(list<opt<A>>) list<A>
value .(opt<A>) A
hasValue .(opt<A>) bool
or .(opt<A>,opt<A>) opt<A>
orValue .(opt<A>,A) A
isSorted .(list<A>) bool
sum .(list<int>) int; .(list<uint>) uint; .(list<double>) double; .(list<duration>) duration
max .(list<A>) A
min .(list<A>) A
find .(string,string) string
findAll .(string,string) list<string>; .(string,string,int) list<string>
url (string) kubernetes.URL
isURL (string) bool
getScheme .(kubernetes.URL) string
getHost .(kubernetes.URL) string
getHostname .(kubernetes.URL) string
getPort .(kubernetes.URL) string
getEscapedPath .(kubernetes.URL) string
getQuery .(kubernetes.URL) map<string,list<string>>
quantity (string) kubernetes.Quantity
isQuantity (string) bool
sign .(kubernetes.Quantity) int
isInteger .(kubernetes.Quantity) bool
asInteger .(kubernetes.Quantity) int
asApproximateFloat .(kubernetes.Quantity) double
add .(kubernetes.Quantity,kubernetes.Quantity) kubernetes.Quantity; .(kubernetes.Quantity,int) kubernetes.Quantity
sub .(kubernetes.Quantity,kubernetes.Quantity) kubernetes.Quantity; .(kubernetes.Quantity,int) kubernetes.Quantity
isGreaterThan .(kubernetes.Quantity,kubernetes.Quantity) bool; .(kubernetes.Semver,kubernetes.Semver) bool
isLessThan .(kubernetes.Quantity,kubernetes.Quantity) bool; .(kubernetes.Semver,kubernetes.Semver) bool
compareTo .(kubernetes.Quantity,kubernetes.Quantity) int; .(kubernetes.Semver,kubernetes.Semver) int
semver (string) kubernetes.Semver; (string,bool) kubernetes.Semver
isSemver (string) bool; (string,bool) bool
major .(kubernetes.Semver) int
minor .(kubernetes.Semver) int
patch .(kubernetes.Semver) int
ip (string) net.IP; .(net.CIDR) net.IP
isIP (string) bool; .(net.CIDR) bool
ip.isCanonical (string) bool
family .(net.IP) int
isUnspecified .(net.IP) bool
isLoopback .(net.IP) bool
isLinkLocalMulticast .(net.IP) bool
isLinkLocalUnicast .(net.IP) bool
isGlobalUnicast .(net.IP) bool
cidr (string) net.CIDR
isCIDR (string) bool
containsIP .(net.CIDR,net.IP) bool; .(net.CIDR,string) bool
containsCIDR .(net.CIDR,net.CIDR) bool; .(net.CIDR,string) bool
prefixLength .(net.CIDR) int
masked .(net.CIDR) net.CIDR
validate .(kubernetes.NamedFormat,string) opt<list<string>>
format.named (string) opt<kubernetes.NamedFormat>
format.dns1123Label () kubernetes.NamedFormat
format.dns1123Subdomain () kubernetes.NamedFormat
format.dns1035Label () kubernetes.NamedFormat
format.qualifiedName () kubernetes.NamedFormat
format.dns1123LabelPrefix () kubernetes.NamedFormat
format.dns1123SubdomainPrefix () kubernetes.NamedFormat
format.dns1035LabelPrefix () kubernetes.NamedFormat
format.labelValue () kubernetes.NamedFormat
format.uri () kubernetes.NamedFormat
format.uuid () kubernetes.NamedFormat
format.byte () kubernetes.NamedFormat
format.date () kubernetes.NamedFormat
format.datetime () kubernetes.NamedFormat
";

/// The types that can be ordered; whole numbers and floats also with each other.
const ORDERED: &[&str] = &["bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration"];

const OPAQUE: &[(&str, &str)] = &[
    ("duration", "duration"),
    ("timestamp", "timestamp"),
    ("kubernetes.URL", "kubernetes.URL"),
    ("kubernetes.Quantity", "kubernetes.Quantity"),
    ("kubernetes.Semver", "kubernetes.Semver"),
    ("kubernetes.NamedFormat", "kubernetes.NamedFormat"),
    ("net.IP", "net.IP"),
    ("net.CIDR", "net.CIDR"),
];

/// The ways to call a function.
pub(super) fn function(name: &str) -> Option<&'static [Overload]> {
    static ALL: OnceLock<HashMap<&'static str, Vec<Overload>>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let mut all: HashMap<&'static str, Vec<Overload>> = FUNCTIONS
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(name, ways)| (name, ways.split("; ").map(overload).collect()))
            .collect();
        for sign in ["_<_", "_<=_", "_>_", "_>=_"] {
            let numbers = ["int", "uint", "double"];
            let mixed =
                numbers.iter().flat_map(|a| numbers.iter().map(move |b| (a, b))).filter(|(a, b)| a != b);
            let ways = ORDERED.iter().map(|t| (t, t)).chain(mixed);
            all.insert(
                sign,
                ways.map(|(a, b)| Overload {
                    member: false,
                    args: vec![read(a), read(b)],
                    result: Type::Bool,
                })
                .collect(),
            );
        }
        all
    });
    all.get(name).map(Vec::as_slice)
}

/// Reads an overload such as `.(A,B) C`.
fn overload(text: &'static str) -> Overload {
    let (args, result) = text.rsplit_once(") ").unwrap_or((text, "dyn"));
    let member = args.starts_with('.');
    let args = args.trim_start_matches(['.', '(']);
    Overload { member, args: list(args), result: read(result) }
}

/// Reads types between commas.
fn list(text: &'static str) -> Vec<Type> {
    let (mut out, mut depth, mut start) = (Vec::new(), 0, 0);
    for (i, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            ',' if depth == 0 => {
                out.push(read(&text[start..i]));
                start = i + 1;
            }
            _ => {}
        }
    }
    if !text.is_empty() {
        out.push(read(&text[start..]));
    }
    out
}

/// The type that a text names.
pub(super) fn read(text: &'static str) -> Type {
    if let Some((outer, inner)) = text.strip_suffix('>').and_then(|t| t.split_once('<')) {
        let mut of = list(inner).into_iter();
        let mut next = || Box::new(of.next().unwrap_or(Type::Dyn));
        return match outer {
            "list" => Type::List(next()),
            "map" => Type::Map(next(), next()),
            "opt" => Type::Optional(next()),
            _ => Type::Type(next()),
        };
    }
    match text {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "dyn" => Type::Dyn,
        _ => match (OPAQUE.iter().find(|(n, _)| *n == text), text.chars().next()) {
            (Some((_, shown)), _) => Type::Opaque(shown),
            (None, Some(c)) => Type::Param(c),
            (None, None) => Type::Dyn,
        },
    }
}
