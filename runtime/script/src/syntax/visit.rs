//! Visits every node of a syntax tree. Rhai's own walk leaves out some expressions and does not separate the branches of
//! a statement.

use std::collections::HashMap;

use rhai::{
    AST, ASTFlags, ASTNode, Dynamic, Expr, FnCallExpr, FnPtr, Position, Stmt, StmtBlock, SwitchCasesCollection,
};

use super::outline::{NodeKind, SyntaxNode};

/// The closures of a script, by name: their parameters, and a script that contains only the closure.
pub(super) type Closures = HashMap<String, (Vec<String>, AST)>;

/// Most levels of nesting: visiting a node takes stack for each.
const DEPTH_MAX: usize = 500;

/// Collects the nodes of statements in the order of the text.
pub(super) struct Visitor<'c> {
    closures: &'c Closures,
    depth: usize,
    pub(super) nodes: Vec<SyntaxNode>,
    /// Whether nodes were left out because they are nested too deeply.
    pub(super) is_cut: bool,
}

impl<'c> Visitor<'c> {
    pub(super) fn new(closures: &'c Closures) -> Self {
        Visitor { closures, depth: 0, nodes: Vec::new(), is_cut: false }
    }

    fn add(&mut self, label: impl Into<String>, kind: NodeKind, position: Position) {
        let line = position.line().unwrap_or(0);
        self.nodes.push(SyntaxNode { depth: self.depth, label: label.into(), kind, line });
    }

    fn other(&mut self, label: impl Into<String>, position: Position) {
        self.add(label, NodeKind::Other, position);
    }

    /// Visits what a node contains.
    fn inside(&mut self, visit: impl FnOnce(&mut Self)) {
        if self.depth == DEPTH_MAX {
            self.is_cut = true;
            return;
        }
        self.depth += 1;
        visit(self);
        self.depth -= 1;
    }

    fn block(&mut self, label: &str, block: &StmtBlock) {
        self.other(label, block.position());
        self.inside(|inner| block.statements().iter().for_each(|statement| inner.statement(statement)));
    }

    fn expressions<'e>(&mut self, expressions: impl IntoIterator<Item = &'e Expr>) {
        self.inside(|inner| expressions.into_iter().for_each(|expression| inner.expression(expression)));
    }

    /// Visits a statement.
    pub(super) fn statement(&mut self, statement: &Stmt) {
        match statement {
            Stmt::Noop(_) | Stmt::Share(_) => {}
            Stmt::Expr(expression) => self.expression(expression),
            Stmt::FnCall(call, position) => self.call(call, *position),
            Stmt::Block(block) => self.block("block", block),
            Stmt::Import(import, position) => {
                self.other(format!("import as {}", import.1.name), *position);
                self.expressions([&import.0]);
            }
            Stmt::Var(declared, flags, position) => {
                let word = if flags.intersects(ASTFlags::CONSTANT) { "const" } else { "let" };
                let name = declared.0.name.to_string();
                self.add(format!("{word} {name}"), NodeKind::Declaration(name), *position);
                self.expressions([&declared.1]);
            }
            Stmt::Assignment(assigned) => {
                let operator = assigned.0.get_op_assignment_info().map_or("=", |(_, _, _, syntax, ..)| syntax);
                let position = assigned.1.lhs.position();
                self.add(format!("assignment {operator}"), NodeKind::Assignment, position);
                self.expressions([&assigned.1.lhs, &assigned.1.rhs]);
            }
            Stmt::BreakLoop(value, flags, position) => {
                self.other(if flags.intersects(ASTFlags::BREAK) { "break" } else { "continue" }, *position);
                self.expressions(value.as_deref());
            }
            Stmt::Return(value, flags, position) => {
                self.other(if flags.intersects(ASTFlags::BREAK) { "throw" } else { "return" }, *position);
                self.expressions(value.as_deref());
            }
            other => self.flow(other),
        }
    }

    /// Visits a statement with bodies.
    fn flow(&mut self, statement: &Stmt) {
        let position = statement.position();
        let (label, kind, flow) = match statement {
            Stmt::If(flow, _) => ("if".to_owned(), NodeKind::Condition, flow.as_ref()),
            Stmt::While(flow, _) => ("while".to_owned(), NodeKind::Other, flow.as_ref()),
            Stmt::Do(flow, flags, _) => {
                let word = if flags.intersects(ASTFlags::NEGATED) { "do until" } else { "do while" };
                (word.to_owned(), NodeKind::Other, flow.as_ref())
            }
            Stmt::TryCatch(flow, _) => ("try".to_owned(), NodeKind::Condition, flow.as_ref()),
            Stmt::For(of, _) => {
                let counter = of.1.as_ref().map(|counter| format!(", {}", counter.name)).unwrap_or_default();
                (format!("for {}{counter}", of.0.name), NodeKind::Declaration(of.0.name.to_string()), &of.2)
            }
            Stmt::Switch(switch, _) => {
                self.add("switch", NodeKind::Condition, position);
                return self.inside(|inner| inner.switch(&switch.0, &switch.1));
            }
            // Statements that the sandbox does not permit, or that a later parser adds.
            other => return self.other(format!("{other:?}"), position),
        };
        self.add(label, kind, position);
        self.inside(|inner| {
            inner.expression(&flow.expr);
            inner.block("body", &flow.body);
            inner.block("branch", &flow.branch);
        });
    }

    /// Visits the cases of a `switch`. The parser keeps only a hash of each case's value.
    fn switch(&mut self, value: &Expr, cases: &SwitchCasesCollection) {
        self.expression(value);
        let mut values: Vec<_> = cases.cases.iter().map(|(hash, case)| (case.blocks.to_vec(), *hash)).collect();
        values.sort_unstable();
        for (blocks, hash) in values {
            self.other(format!("case {hash:x} {blocks:?}"), Position::NONE);
        }
        for range in &cases.ranges {
            self.other(format!("case {range:?}"), Position::NONE);
        }
        self.other(format!("default {:?}", cases.def_case), Position::NONE);
        for case in &cases.expressions {
            self.expression(&case.lhs);
            self.expression(&case.rhs);
        }
    }

    fn literal(&mut self, text: String, position: Position) {
        self.add(text, NodeKind::Literal, position);
    }

    /// Visits an expression.
    fn expression(&mut self, expression: &Expr) {
        let position = expression.start_position();
        match expression {
            Expr::DynamicConstant(value, _) => self.constant(value, position),
            Expr::BoolConstant(value, _) => self.literal(value.to_string(), position),
            Expr::IntegerConstant(value, _) => self.literal(value.to_string(), position),
            Expr::FloatConstant(value, _) => self.literal(format!("{:?}", **value), position),
            Expr::CharConstant(value, _) => self.literal(format!("{value:?}"), position),
            Expr::StringConstant(value, _) => self.literal(format!("{:?}", value.as_str()), position),
            Expr::Unit(_) => self.other("()", position),
            Expr::ThisPtr(_) => self.other("this", position),
            Expr::Variable(variable, ..) => {
                let name = variable.1.to_string();
                let namespace: String = variable.2.path.iter().map(|part| format!("{}::", part.name)).collect();
                self.add(format!("variable {namespace}{name}"), NodeKind::Variable(name), position);
            }
            Expr::Property(property, _) => self.other(format!("property {}", property.2), position),
            Expr::MethodCall(call, position) => {
                let name = call.name.to_string();
                self.add(format!("method {name} {}", call.args.len()), NodeKind::Method(name), *position);
                self.expressions(&call.args);
            }
            Expr::FnCall(call, position) => self.call(call, *position),
            Expr::Stmt(block) => self.block("block", block),
            other => self.composite(other, position),
        }
    }

    /// Visits an expression that consists of others.
    fn composite(&mut self, expression: &Expr, position: Position) {
        match expression {
            Expr::InterpolatedString(parts, _) => {
                self.other(format!("interpolated {}", parts.len()), position);
                self.expressions(parts);
            }
            Expr::Array(parts, _) => {
                self.other(format!("array {}", parts.len()), position);
                self.expressions(parts);
            }
            Expr::Map(map, _) => {
                let keys: Vec<&str> = map.0.iter().map(|(key, _)| key.name.as_str()).collect();
                self.other(format!("map {keys:?}"), position);
                self.expressions(map.0.iter().map(|(_, value)| value));
            }
            Expr::Dot(parts, flags, _) => {
                self.other(if flags.intersects(ASTFlags::NEGATED) { "?." } else { "." }, position);
                self.expressions([&parts.lhs, &parts.rhs]);
            }
            Expr::Index(parts, flags, _) => {
                let label = if flags.intersects(ASTFlags::NEGATED) { "?[]" } else { "[]" };
                self.add(label, NodeKind::Index, position);
                self.expressions([&parts.lhs, &parts.rhs]);
            }
            Expr::And(parts, _) => self.logic("&&", parts, position),
            Expr::Or(parts, _) => self.logic("||", parts, position),
            Expr::Coalesce(parts, _) => self.logic("??", parts, position),
            // Expressions that the sandbox does not permit, or that a later parser adds.
            other => self.other(format!("{other:?}"), position),
        }
    }

    /// Visits operands of which the first decides whether the others are evaluated.
    fn logic(&mut self, operator: &str, parts: &[Expr], position: Position) {
        self.add(format!("{operator} {}", parts.len()), NodeKind::Condition, position);
        self.expressions(parts);
    }

    fn call(&mut self, call: &FnCallExpr, position: Position) {
        let namespace: Vec<&str> = call.namespace.path.iter().map(|part| part.name.as_str()).collect();
        let (namespace, name) = (namespace.join("::"), call.name.to_string());
        let label = format!("call {namespace}::{name} {}", call.args.len());
        let kind = match name.as_str() {
            ".." | "..=" => NodeKind::Range,
            _ if call.is_operator_call() => NodeKind::Other,
            _ => NodeKind::Call { namespace, name },
        };
        self.add(label, kind, position);
        self.expressions(&call.args);
    }

    /// Visits a constant that is no simple value: a closure, or a constant array, map or range.
    fn constant(&mut self, value: &Dynamic, position: Position) {
        let Some(pointer) = value.read_lock::<FnPtr>() else { return self.literal(format!("{value:?}"), position) };
        let Some((parameters, body)) = self.closures.get(pointer.fn_name()) else {
            let name = pointer.fn_name().to_owned();
            return self.add(format!("function {name}"), NodeKind::Call { namespace: String::new(), name }, position);
        };
        self.other(format!("closure {}", parameters.join(", ")), position);
        self.inside(|inner| {
            body.walk(&mut |path: &[ASTNode<'_>]| {
                if let [ASTNode::Stmt(statement)] = path {
                    inner.statement(statement);
                }
                true
            });
        });
    }
}
