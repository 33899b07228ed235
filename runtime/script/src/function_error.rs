//! Errors about calls: a function that does not exist, and a function that exists but not for these arguments.

use std::collections::HashSet;
use std::sync::OnceLock;

use rhai::Engine;

use super::error::function_name;
use super::names::type_word;
use super::sandbox::language_modules;
use super::suggestion::suggestion;

/// Largest number of signatures that a message lists.
const LISTED: usize = 4;

/// Functions of PyTorch and NumPy, each with the function that replaces it in scripts, and an example.
const OTHER_NAMES: [(&str, &str, &str); 12] = [
    ("astype", "cast", ""),
    ("cat", "concat", ""),
    ("clamp", "clip", ""),
    ("concatenate", "concat", ""),
    ("expand_dims", "unsqueeze", ""),
    ("flatten", "reshape", ", in which one size may be -1"),
    ("meshgrid", "arange", " with `unsqueeze` and `expand`"),
    ("permute", "transpose", " with the new order of the dimensions"),
    ("repeat", "tile", ""),
    ("swapaxes", "transpose", " with the new order of the dimensions"),
    ("upsample", "interpolate", ""),
    ("view", "reshape", ""),
];

/// Returns the reason for a call of `signature`, in Rhai's form `metric::topk (Tensor, array)`, that matches none of the
/// `known` signatures.
pub(super) fn function_not_found(signature: &str, known: &[String]) -> String {
    let (name, arguments) = signature.split_once('(').unwrap_or((signature, ""));
    let name = name.trim();
    let arguments: Vec<String> =
        arguments.trim_end_matches(')').split(", ").filter(|word| !word.is_empty()).map(type_word).collect();
    if !name.contains(|c: char| c.is_alphanumeric() || c == '_') {
        let power =
            if name == "**" && arguments.first().is_some_and(|first| first == "node") { "; use `pow`" } else { "" };
        return format!("`{name}` has no meaning for `{}`{power}", arguments.join("` and `"));
    }
    let overloads = overloads(name, arguments.first().map_or("", String::as_str), known);
    if overloads.is_empty() {
        return unknown_function(name, known);
    }
    let listed: Vec<String> = overloads.iter().take(LISTED).map(|signature| describe(signature)).collect();
    let more = if overloads.len() > LISTED { " or another form" } else { "" };
    let other = replacement(name, known).map(|other| format!(", or {other}")).unwrap_or_default();
    format!("`{name}` does not accept ({}); expected {}{more}{other}", arguments.join(", "), listed.join(" or "))
}

/// Returns the replacement of a function of PyTorch or NumPy, if the script may call it.
fn replacement(name: &str, known: &[String]) -> Option<String> {
    let (_, here, how) = OTHER_NAMES.iter().find(|(other, ..)| *other == last_part(name))?;
    let is_known = known.iter().any(|signature| last_part(function_name(signature)) == *here);
    is_known.then(|| format!("`{here}`{how}"))
}

/// Returns the reason for a call of a function that does not exist. Functions of the language are not suggested: the
/// caller meant one of a package, or one of its own.
pub(super) fn unknown_function(name: &str, known: &[String]) -> String {
    if let Some(here) = replacement(name, known) {
        return format!("unknown function `{name}`; use {here}");
    }
    let candidates = known.iter().map(|signature| function_name(signature)).filter(|known| !is_of_language(known));
    // A method is called without the name of its package.
    let candidates = candidates.map(|known| if name.contains("::") { known } else { last_part(known) });
    format!("unknown function `{name}`{}", suggestion(name, candidates.filter(|known| is_word(known))))
}

/// Returns the signatures of the functions with this name, a method's without its package. If some of them accept the
/// type of the first argument, the others are left out.
fn overloads<'k>(name: &str, first: &str, known: &'k [String]) -> Vec<&'k str> {
    let is_named = |signature: &&str| {
        let full = function_name(signature);
        full == name || (!name.contains("::") && last_part(full) == name)
    };
    let mut named: Vec<&str> = known.iter().map(String::as_str).filter(is_named).collect();
    named.sort_unstable();
    named.dedup();
    let accepts_first = |signature: &&str| parameters(signature).next().is_some_and(|(_, kind)| kind == first);
    let matching: Vec<&str> = named.iter().copied().filter(accepts_first).collect();
    if matching.is_empty() { named } else { matching }
}

/// Returns a signature in the words of scripts: `tensor::slice(tensor, axis: int, start: int, end: int)`.
fn describe(signature: &str) -> String {
    let describe = |(name, kind): (&str, String)| {
        if kind == "any" || kind.is_empty() || name == kind { name.to_owned() } else { format!("{name}: {kind}") }
    };
    let parameters: Vec<String> = parameters(signature).map(describe).collect();
    format!("`{}({})`", function_name(signature), parameters.join(", "))
}

/// Returns the names and the types of the parameters of a signature.
fn parameters(signature: &str) -> impl Iterator<Item = (&str, String)> {
    let inside = signature.split_once('(').map_or("", |(_, rest)| rest);
    let inside = inside.split_once(") ->").map_or(inside.trim_end_matches(')'), |(inside, _)| inside);
    inside.split(", ").filter(|parameter| !parameter.is_empty()).map(|parameter| {
        let (name, kind) = parameter.split_once(':').unwrap_or((parameter, ""));
        (name.trim(), if kind.is_empty() { String::new() } else { type_word(kind) })
    })
}

/// Returns the name of a function without that of its package.
pub(super) fn last_part(name: &str) -> &str {
    name.rsplit_once("::").map_or(name, |(_, last)| last)
}

fn is_word(name: &str) -> bool {
    name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == ':')
}

fn is_of_language(name: &str) -> bool {
    static NAMES: OnceLock<HashSet<String>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let mut engine = Engine::new_raw();
        for module in language_modules() {
            engine.register_global_module(module.clone());
        }
        engine.gen_fn_signatures(true).iter().map(|signature| function_name(signature).to_owned()).collect()
    });
    names.contains(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<String> {
        [
            "tensor::slice(tensor: &mut Tensor, axis: i64, start: i64, end: i64) -> Fallible<Tensor>",
            "tensor::gather(tensor: &mut Tensor, indices: Dynamic, axis: i64) -> Fallible<Tensor>",
            "nn::gather(x: Node, axis: i64) -> Fallible<Node>",
            "splice(array: &mut Array, range: Range<i64>, replace: Array)",
            "preprocess(image)",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    #[test]
    fn a_known_function_with_wrong_arguments_shows_what_it_takes() {
        assert_eq!(
            function_not_found("slice (Tensor, i64, string)", &known()),
            "`slice` does not accept (tensor, int, string); expected \
             `tensor::slice(tensor, axis: int, start: int, end: int)`"
        );
        assert_eq!(
            function_not_found("gather (Tensor)", &known()),
            "`gather` does not accept (tensor); expected `tensor::gather(tensor, indices, axis: int)`"
        );
        assert!(
            function_not_found("gather (string)", &known()).contains("nn::gather(x: node, axis: int)` or `tensor::")
        );
        assert_eq!(function_not_found("+ (Node, string)", &known()), "`+` has no meaning for `node` and `string`");
    }

    #[test]
    fn a_parameter_of_several_types_is_named_once() {
        let known = ["nn::linear(x: Node, name: &str | ImmutableString | String, out: i64 | f64)".to_owned()];
        assert_eq!(
            function_not_found("linear (Node, i64, i64)", &known),
            "`linear` does not accept (node, int, int); expected `nn::linear(x: node, name: string, out: int or float)`"
        );
        assert!(
            function_not_found("linear (Node, &str | ImmutableString | String, bool)", &known)
                .starts_with("`linear` does not accept (node, string, bool); ")
        );
    }

    #[test]
    fn a_function_of_pytorch_or_numpy_names_the_one_that_is_used_here() {
        let mut known = known();
        assert_eq!(
            unknown_function("permute", &known),
            "unknown function `permute` (known: gather, preprocess, slice)"
        );
        known.extend(["nn::transpose(x: Node, order: Array)", "nn::reshape(x: Node)"].map(str::to_owned));
        known.extend(["nn::concat(values: Array, axis: i64)", "nn::flatten(x: Node)"].map(str::to_owned));
        assert_eq!(
            unknown_function("permute", &known),
            "unknown function `permute`; use `transpose` with the new order of the dimensions"
        );
        assert_eq!(unknown_function("nn::cat", &known), "unknown function `nn::cat`; use `concat`");
        assert_eq!(
            function_not_found("flatten (Node, i64)", &known),
            "`flatten` does not accept (node, int); expected `nn::flatten(x: node)`, or `reshape`, in which one size may \
             be -1"
        );
        assert_eq!(function_not_found("** (Node, i64)", &known), "`**` has no meaning for `node` and `int`; use `pow`");
    }

    #[test]
    fn an_unknown_function_suggests_those_of_packages_and_of_the_script() {
        assert_eq!(unknown_function("slise", &known()), "unknown function `slise`; did you mean `slice`?");
        assert_eq!(
            unknown_function("tensor::slise", &known()),
            "unknown function `tensor::slise`; did you mean `tensor::slice`?"
        );
        assert_eq!(unknown_function("preproces", &known()), "unknown function `preproces`; did you mean `preprocess`?");
        let without_tensor: Vec<String> = known().into_iter().skip(3).collect();
        assert_eq!(unknown_function("slice", &without_tensor), "unknown function `slice` (known: preprocess)");
    }
}
