//! The call graph of the scripts of a tree, across shared scripts.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use super::tree::{Snapshot, Unreadable};
use flagperf_script::{FunctionOutline, NodeKind, ScriptOutline, ScriptParser, SyntaxProblem};

/// The functions whose time is `core`.
pub(super) const FORWARD_FUNCTIONS: [&str; 2] = ["model_forward", "engine_forward"];

/// A function of a tree: its file and its name. Functions with the same name and other parameters are one.
pub(super) type FunctionKey = (String, String);

/// Why a script has no outline.
#[derive(Clone, Debug)]
pub(super) enum NoOutline {
    /// It cannot be read.
    Unreadable(Unreadable),
    /// It cannot be parsed.
    Syntax(SyntaxProblem),
}

type Parsed = Result<Rc<ScriptOutline>, NoOutline>;

/// The scripts of one tree, each parsed once.
pub(super) struct ScriptTree<'s> {
    snapshot: &'s dyn Snapshot,
    parser: &'s ScriptParser,
    parsed: RefCell<HashMap<String, Parsed>>,
}

impl<'s> ScriptTree<'s> {
    pub(super) fn new(snapshot: &'s dyn Snapshot, parser: &'s ScriptParser) -> Self {
        ScriptTree { snapshot, parser, parsed: RefCell::default() }
    }

    /// Returns the outline of a script.
    pub(super) fn outline(&self, file: &str) -> Parsed {
        if let Some(known) = self.parsed.borrow().get(file) {
            return known.clone();
        }
        let text = self.snapshot.text(file).map_err(NoOutline::Unreadable);
        let parsed = text.and_then(|text| self.parser.parse(&text).map(Rc::new).map_err(NoOutline::Syntax));
        self.parsed.borrow_mut().insert(file.to_owned(), parsed.clone());
        parsed
    }

    /// Returns the forward functions of every case, every vendor and every shared script.
    pub(super) fn forward_functions(&self) -> Vec<FunctionKey> {
        let is_script = |name: &str| name.ends_with(".rhai");
        let mut files = Vec::new();
        for case in self.snapshot.list("scripts").into_iter().filter(|name| name.is_folder) {
            let folder = format!("scripts/{}", case.text);
            for name in self.snapshot.list(&folder) {
                match (name.is_folder, case.text.as_str()) {
                    (true, _) => files.push(format!("{folder}/{}/forward.rhai", name.text)),
                    (false, "lib") if is_script(&name.text) => files.push(format!("{folder}/{}", name.text)),
                    (false, _) if name.text == "forward.rhai" => files.push(format!("{folder}/forward.rhai")),
                    _ => {}
                }
            }
        }
        let forward = |file: String| {
            let outline = self.outline(&file).ok()?;
            let names =
                FORWARD_FUNCTIONS.into_iter().filter(|name| outline.functions.iter().any(|own| own.name == *name));
            Some(names.map(|name| (file.clone(), name.to_owned())).collect::<Vec<_>>())
        };
        files.into_iter().filter_map(forward).flatten().collect()
    }

    /// Returns a function and all functions of scripts that it calls, directly and through others.
    pub(super) fn reachable(&self, function: &FunctionKey) -> BTreeSet<FunctionKey> {
        let (mut pending, mut found) = (vec![function.clone()], BTreeSet::new());
        while let Some(key) = pending.pop() {
            if found.insert(key.clone()) {
                pending.extend(self.callees(&key));
            }
        }
        found
    }

    /// Returns the functions of scripts that a function calls. The name of a function in a string counts as a call.
    fn callees(&self, (file, name): &FunctionKey) -> Vec<FunctionKey> {
        let Ok(outline) = self.outline(file) else { return Vec::new() };
        let is_own = |name: &str| outline.functions.iter().any(|own| own.name == name);
        let own = |name: &str| is_own(name).then(|| (file.clone(), name.to_owned()));
        let nodes = outline.functions.iter().filter(|own| own.name == *name).flat_map(|own| &own.nodes);
        let callee = |kind: &NodeKind, label: &str| match kind {
            NodeKind::Call { namespace, name } if namespace.is_empty() => own(name),
            NodeKind::Call { namespace, name } => {
                Some((format!("scripts/{}.rhai", outline.imports.get(namespace)?), name.clone()))
            }
            NodeKind::Method(name) => own(name),
            NodeKind::Literal => own(label.trim_matches('"')),
            _ => None,
        };
        nodes.filter_map(|node| callee(&node.kind, &node.label)).collect()
    }

    /// Calls `visit` with every version of each of the functions and its file.
    pub(super) fn for_each(&self, keys: &BTreeSet<FunctionKey>, mut visit: impl FnMut(&str, &FunctionOutline)) {
        for (file, name) in keys {
            let Ok(outline) = self.outline(file) else { continue };
            outline.functions.iter().filter(|own| own.name == *name).for_each(|own| visit(file, own));
        }
    }
}
