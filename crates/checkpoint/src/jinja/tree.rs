//! Syntax tree of a template: statements and expressions.

use std::rc::Rc;

use super::value::Value;

#[derive(Debug)]
pub(super) struct Statement {
    pub(super) line: usize,
    pub(super) kind: StatementKind,
}

#[derive(Debug)]
pub(super) enum StatementKind {
    Data(String),
    Print(Expression),
    /// Conditions with what they lead to, and what is left.
    If(Vec<(Expression, Vec<Statement>)>, Vec<Statement>),
    For(Rc<For>),
    Set(Target, Expression),
    /// The output of statements, through filters, as a value.
    Capture(Target, Filters, Vec<Statement>),
    Filter(Filters, Vec<Statement>),
    Macro(Rc<Macro>),
    /// A call of a macro that may call these statements back.
    Call(Expression, Rc<Macro>),
    With(Vec<(Target, Expression)>, Vec<Statement>),
    Do(Expression),
    Break,
    Continue,
}

#[derive(Debug)]
pub(super) struct For {
    pub(super) target: Target,
    pub(super) items: Expression,
    pub(super) condition: Option<Expression>,
    /// Sets whether the loop may be called inside of itself.
    pub(super) recursive: bool,
    pub(super) body: Vec<Statement>,
    pub(super) otherwise: Vec<Statement>,
}

#[derive(Debug)]
pub(super) struct Macro {
    pub(super) name: String,
    /// Parameters with their defaults.
    pub(super) parameters: Vec<(String, Option<Expression>)>,
    pub(super) uses: Uses,
    pub(super) body: Vec<Statement>,
}

/// Names that a macro gets without a parameter, if it reads them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Uses {
    pub(super) caller: bool,
    /// Arguments by name that no parameter takes.
    pub(super) kwargs: bool,
    /// Arguments by place behind those of the parameters.
    pub(super) varargs: bool,
}

/// Filters with their arguments, the first to be applied first.
pub(super) type Filters = Vec<(String, Arguments)>;

#[derive(Debug)]
pub(super) enum Target {
    Name(String),
    Attribute(String, String),
    Several(Vec<Target>),
}

#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) positional: Vec<Expression>,
    pub(super) named: Vec<(String, Expression)>,
    /// More by place, behind `*`.
    pub(super) star: Option<Expression>,
    /// More by name, behind `**`.
    pub(super) stars: Option<Expression>,
}

#[derive(Debug)]
pub(super) struct Expression {
    pub(super) line: usize,
    /// Levels of the tree below and with it.
    pub(super) depth: usize,
    pub(super) kind: Box<ExpressionKind>,
}

#[derive(Debug)]
pub(super) enum ExpressionKind {
    Constant(Value),
    Name(String),
    List(Vec<Expression>),
    Tuple(Vec<Expression>),
    Map(Vec<(Expression, Expression)>),
    Not(Expression),
    Negative(Expression),
    Positive(Expression),
    Binary(Operator, Expression, Expression),
    And(Expression, Expression),
    Or(Expression, Expression),
    /// `a < b < c`: each neighbour is compared.
    Compare(Expression, Vec<(Comparison, Expression)>),
    /// Value, condition, and the value where it does not hold.
    Choice(Expression, Expression, Option<Expression>),
    Attribute(Expression, String),
    Item(Expression, Expression),
    Slice(Expression, [Option<Expression>; 3]),
    Call(Expression, Arguments),
    Filter(Expression, String, Arguments),
    /// Value, test, arguments, and whether it must not hold.
    Test(Expression, String, Arguments, bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Floor,
    Remainder,
    Power,
    Join,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
}
