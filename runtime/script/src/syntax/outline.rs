//! The syntax tree of a script as lists of nodes in the order of the text.

use indexmap::IndexMap;

/// A parsed script.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScriptOutline {
    /// Its functions, in the order of their lines. A closure is part of the function that contains it.
    pub functions: Vec<FunctionOutline>,
    /// The statements outside all functions.
    pub statements: Vec<SyntaxNode>,
    /// The names of the imported shared scripts, by the names that the script gives to them.
    pub imports: IndexMap<String, String>,
}

/// A function of a script.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionOutline {
    pub name: String,
    /// The names of its parameters.
    pub parameters: Vec<String>,
    /// Whether scripts that import this one cannot call it.
    pub is_private: bool,
    /// The line of its definition, from 1.
    pub line: usize,
    /// The nodes of its body; each node precedes those inside it.
    pub nodes: Vec<SyntaxNode>,
}

/// A node of a syntax tree.
#[derive(Clone, Debug, PartialEq)]
pub struct SyntaxNode {
    /// How many nodes contain it.
    pub depth: usize,
    /// What the node is, without its position: two trees are equal if depths and labels are.
    pub label: String,
    pub kind: NodeKind,
    /// Its line, from 1; 0 when unknown.
    pub line: usize,
}

/// The kind of a node, with the name that it uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A constant as written.
    Literal,
    /// A call: the name in front of `::` (empty without one), and the name of the function.
    Call {
        /// The name of a package or of an import; empty without one.
        namespace: String,
        /// The name of the function.
        name: String,
    },
    /// A call of a method of a value.
    Method(String),
    /// A use of a variable.
    Variable(String),
    /// The declaration of a variable.
    Declaration(String),
    /// An assignment; the first node inside is its target.
    Assignment,
    /// A statement whose body may not run: `if`, `switch`, `try`.
    Condition,
    /// An element or a part of a value: `value[index]`.
    Index,
    /// A constant range: `0..4`.
    Range,
    /// Anything else.
    Other,
}

impl FunctionOutline {
    /// Returns whether two functions have the same parameters and the same tree, whatever their names.
    pub fn has_same_tree(&self, other: &FunctionOutline) -> bool {
        self.parameters == other.parameters
            && self.is_private == other.is_private
            && same_nodes(&self.nodes, &other.nodes)
    }

    /// Returns the nodes inside the node number `at`.
    pub fn inside(&self, at: usize) -> &[SyntaxNode] {
        let Some(node) = self.nodes.get(at) else { return &[] };
        let rest = &self.nodes[at + 1..];
        let end = rest.iter().position(|other| other.depth <= node.depth).unwrap_or(rest.len());
        &rest[..end]
    }

    /// Returns the nodes that contain the node number `at`, innermost first.
    pub fn around(&self, at: usize) -> Vec<&SyntaxNode> {
        let mut depth = self.nodes[at].depth;
        let before = self.nodes[..at].iter().rev();
        let mut found = Vec::new();
        for node in before {
            if node.depth < depth {
                depth = node.depth;
                found.push(node);
            }
        }
        found
    }
}

/// Returns whether two lists of nodes are the same tree.
pub(super) fn same_nodes(one: &[SyntaxNode], other: &[SyntaxNode]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| one.depth == other.depth && one.label == other.label)
}

impl ScriptOutline {
    /// Returns the function with this name and number of parameters.
    pub fn find(&self, name: &str, arity: usize) -> Option<&FunctionOutline> {
        self.functions.iter().find(|own| own.name == name && own.parameters.len() == arity)
    }
}
