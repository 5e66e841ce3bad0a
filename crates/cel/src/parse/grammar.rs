//! The grammar, with the complaints of upstream's generated parser.
//!
//! DIFFERENCE: upstream's parser goes on after a syntax error; the complaints after the first one are not always the
//! same here. Upstream counts the operands of a long chain as nested in it; here a chain's own length counts.

use std::sync::Arc;

use crate::ast::{Call, Entry, Expr, Field, Kind, Literal, operator as op};
use crate::issue::Issues;

use super::build::{Builder, Positions};
use super::lex::{Lexeme, Token};
use super::macros::{self, MacroSet};
use super::{Parsed, RESERVED, literal};

/// The greatest nesting of each rule of the grammar.
const DEEPEST: usize = 250;

const OPERAND: &str =
    "'.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

/// Parses tokens; without a tree an issue tells the reason.
pub(super) fn parse(
    tokens: &[Lexeme],
    macros: &MacroSet,
    optionals: bool,
    issues: &mut Issues,
) -> Option<Parsed> {
    let positions = Positions::default();
    let mut p = Parser {
        tokens,
        at: 0,
        depth: Depth::default(),
        macros,
        optionals,
        positions,
        issues,
        closers: Vec::new(),
    };
    let tree = p.expression()?;
    if p.token().token != Token::End {
        let kind = if p.next_is_end() { "extraneous" } else { "mismatched" };
        let text = format!("Syntax error: {kind} input '{}' expecting <EOF>", p.token().text);
        p.fail(text);
        return None;
    }
    Some(Parsed { tree, positions: p.positions })
}

/// How deep the rules that upstream counts are nested.
#[derive(Default)]
struct Depth {
    expr: usize,
    relation: usize,
    calc: usize,
    member: usize,
}

struct Parser<'a> {
    tokens: &'a [Lexeme],
    at: usize,
    depth: Depth,
    macros: &'a MacroSet,
    optionals: bool,
    positions: Positions,
    issues: &'a mut Issues,
    /// The brackets that are still to be closed.
    closers: Vec<&'static str>,
}

impl<'a> Parser<'a> {
    fn token(&self) -> &'a Lexeme {
        // The last token is the end, which the parser never passes.
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }
    fn next(&self) -> &'a Lexeme {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)]
    }
    fn next_is_end(&self) -> bool {
        self.next().token == Token::End
    }
    fn is(&self, sign: &str) -> bool {
        self.token().token == Token::Sign && self.token().text == sign
    }
    /// Passes over a sign and returns its place.
    fn take(&mut self, sign: &str) -> Option<usize> {
        let at = self.token().at;
        self.is(sign).then(|| {
            self.at += 1;
            at
        })
    }
    fn fail(&mut self, text: String) {
        let at = self.token().at;
        self.issues.push(Some(at), text);
    }
    fn mismatch<T>(&mut self, expected: &str) -> Option<T> {
        let text = format!("Syntax error: mismatched input '{}' expecting {expected}", self.token().text);
        self.fail(text);
        None
    }
    /// Complains about a token that is one too many, and passes over it.
    fn extraneous(&mut self, expected: &str) {
        let text = format!("Syntax error: extraneous input '{}' expecting {expected}", self.token().text);
        self.fail(text);
        self.at += 1;
    }
    fn expr(&mut self, at: usize, kind: Kind) -> Expr {
        Expr { id: self.positions.add(at), kind }
    }
    fn call(&mut self, at: usize, function: &str, args: Vec<Expr>) -> Expr {
        self.expr(at, Kind::Call(Call { function: function.into(), target: None, args }))
    }
    fn too_long<T>(&mut self) -> Option<T> {
        self.issues.push(None, "max recursion depth exceeded".into());
        None
    }
    fn too_deep<T>(&mut self) -> Option<T> {
        self.issues.push(None, format!("expression recursion limit exceeded: {DEEPEST}"));
        None
    }

    /// Passes over the bracket that closes, of which upstream's parser does without where all else fits.
    fn close(&mut self, sign: &'static str) -> Option<()> {
        if self.take(sign).is_some() {
            return Some(());
        }
        let t = self.token();
        let follows = match self.closers.last() {
            None => t.token == Token::End,
            Some(outer) => t.token == Token::Sign && (t.text == *outer || t.text == "," && *outer != "]"),
        };
        if self.next().token == Token::Sign && self.next().text == sign {
            self.extraneous(&format!("'{sign}'"));
            self.at += 1;
        } else if follows {
            self.fail(format!("Syntax error: missing '{sign}' at '{}'", t.text));
        } else {
            return self.mismatch(&format!("'{sign}'"));
        }
        Some(())
    }

    fn inside<T>(&mut self, closer: &'static str, inner: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.closers.push(closer);
        let out = inner(self);
        self.closers.pop();
        out
    }

    fn expression(&mut self) -> Option<Expr> {
        self.depth.expr += 1;
        if self.depth.expr > DEEPEST {
            return self.too_deep();
        }
        let condition = self.logical(true)?;
        let tree = match self.take("?") {
            None => condition,
            Some(at) => {
                let yes = self.inside(":", |p| p.logical(true))?;
                if self.take(":").is_none() {
                    return self.mismatch("':'");
                }
                let no = self.expression()?;
                self.call(at, op::CONDITIONAL, vec![condition, yes, no])
            }
        };
        self.depth.expr -= 1;
        Some(tree)
    }

    /// Parses `||`, and below it `&&`: any number of operands, of which a balanced tree is made.
    fn logical(&mut self, or: bool) -> Option<Expr> {
        let (sign, function) = if or { ("||", op::OR) } else { ("&&", op::AND) };
        let mut terms = vec![self.below(or)?];
        let mut signs = Vec::new();
        while let Some(at) = self.take(sign) {
            signs.push(at);
            terms.push(self.below(or)?);
        }
        if signs.is_empty() {
            return terms.pop();
        }
        let mut terms: Vec<Option<Expr>> = terms.into_iter().map(Some).collect();
        self.balanced(function, &mut terms, &signs)
    }

    fn below(&mut self, or: bool) -> Option<Expr> {
        if or { self.logical(false) } else { self.relation() }
    }

    fn balanced(&mut self, function: &str, terms: &mut [Option<Expr>], signs: &[usize]) -> Option<Expr> {
        if signs.is_empty() {
            return terms.first_mut()?.take();
        }
        let middle = signs.len() / 2;
        let (left, right) = terms.split_at_mut(middle + 1);
        let left = self.balanced(function, left, &signs[..middle])?;
        let right = self.balanced(function, right, &signs[middle + 1..])?;
        Some(self.call(signs[middle], function, vec![left, right]))
    }

    fn relation(&mut self) -> Option<Expr> {
        let before = self.depth.relation;
        self.depth.relation += 1;
        if self.depth.relation > DEEPEST {
            return self.too_deep();
        }
        let mut left = self.sum()?;
        let mut length = 0;
        loop {
            let t = self.token();
            let function = match (t.token, t.text.as_str()) {
                (Token::Sign, "<") => "_<_",
                (Token::Sign, "<=") => "_<=_",
                (Token::Sign, ">") => "_>_",
                (Token::Sign, ">=") => "_>=_",
                (Token::Sign, "==") => op::EQUALS,
                (Token::Sign, "!=") => op::NOT_EQUALS,
                (Token::Word, "in") => op::IN,
                _ => break,
            };
            self.at += 1;
            length += 1;
            // The right side is within two expressions: this one and itself.
            self.depth.relation = before + 2;
            let right = self.sum()?;
            left = self.chained(length, t.at, function, vec![left, right])?;
            self.depth.relation = before + 1;
        }
        self.depth.relation = before;
        Some(left)
    }

    /// A call that is one of a chain, of which each holds the one before.
    fn chained(&mut self, length: usize, at: usize, function: &str, args: Vec<Expr>) -> Option<Expr> {
        if length > DEEPEST {
            return self.too_long();
        }
        Some(self.call(at, function, args))
    }

    fn sum(&mut self) -> Option<Expr> {
        self.calc(&[("+", op::ADD), ("-", "_-_")], Self::product)
    }

    fn product(&mut self) -> Option<Expr> {
        self.calc(&[("*", "_*_"), ("/", "_/_"), ("%", "_%_")], Self::unary)
    }

    fn calc(&mut self, signs: &[(&str, &str)], below: fn(&mut Self) -> Option<Expr>) -> Option<Expr> {
        let before = self.depth.calc;
        // Products and sums are one rule.
        let rule = usize::from(signs.len() == 2);
        self.depth.calc += rule;
        if self.depth.calc > DEEPEST {
            return self.too_deep();
        }
        let mut left = below(self)?;
        let mut length = 0;
        while let Some((_, function)) = signs.iter().find(|(s, _)| self.is(s)) {
            let at = self.token().at;
            self.at += 1;
            length += 1;
            self.depth.calc = before + rule + 1;
            let right = below(self)?;
            left = self.chained(length, at, function, vec![left, right])?;
            self.depth.calc = before + rule;
        }
        self.depth.calc = before;
        Some(left)
    }

    fn unary(&mut self) -> Option<Expr> {
        for (sign, function) in [("!", op::NOT), ("-", op::NEGATE)] {
            let mut signs = Vec::new();
            while let Some(at) = self.take(sign) {
                signs.push(at);
            }
            let Some(first) = signs.first().copied() else { continue };
            let t = self.token();
            let number = |t: &Lexeme| matches!(t.token, Token::Int | Token::Float);
            if t.token == Token::End {
                return self.alone(sign);
            }
            let mut own = None;
            if sign == "-" && signs.len() == 1 && number(t) {
                // One sign before a number belongs to the number.
                own = signs.pop();
            } else if sign == "!" && self.is("-") {
                if !number(self.next()) {
                    let text =
                        format!("Syntax error: no viable alternative at input '-{}'", self.next().text);
                    self.at += 1;
                    self.fail(text);
                    return None;
                }
                own = self.take("-");
            }
            let of = self.member(own)?;
            // An even number of these signs cancels out.
            return Some(if signs.len() % 2 == 1 { self.call(first, function, vec![of]) } else { of });
        }
        self.member(None)
    }

    /// Complains about signs that nothing follows.
    fn alone(&mut self, sign: &str) -> Option<Expr> {
        if sign == "!" {
            self.fail(format!(
                "Syntax error: extraneous input '<EOF>' expecting {{'[', '{{', '(', {OPERAND}"
            ));
            return None;
        }
        self.fail("Syntax error: no viable alternative at input '-'".into());
        self.mismatch(&format!("{{'[', '{{', '(', {OPERAND}"))
    }

    /// Parses an operand and what follows its points and brackets; `number` is the place of a sign before it.
    fn member(&mut self, number: Option<usize>) -> Option<Expr> {
        let before = self.depth.member;
        self.depth.member += 1;
        if self.depth.member > DEEPEST {
            return self.too_deep();
        }
        let mut of = self.primary(number, "'[', '{', '(', ")?;
        let mut length = 0;
        loop {
            if let Some(at) = self.take(".") {
                of = self.field_or_call(of, at)?;
            } else if let Some(at) = self.take("[") {
                let optional = self.take("?").is_some();
                let index = self.inside("]", |p| {
                    p.operand(if optional { "'[', '{', '(', " } else { "'[', '{', '(', ?" })?;
                    p.expression()
                })?;
                self.close("]")?;
                if optional && !self.optionals {
                    self.issues.push(Some(at), "unsupported syntax '[?'".into());
                }
                of = self.call(at, if optional { op::OPT_INDEX } else { op::INDEX }, vec![of, index]);
            } else {
                break;
            }
            length += 1;
            if length > DEEPEST {
                return self.too_long();
            }
        }
        self.depth.member = before;
        Some(of)
    }

    fn field_or_call(&mut self, of: Expr, at: usize) -> Option<Expr> {
        let optional = self.take("?").is_some();
        let name_at = self.token().at;
        let name = self.identifier(optional)?;
        if !optional && let Some(open) = self.take("(") {
            let args = self.arguments()?;
            return Some(self.member_call(open, of, name, args));
        }
        if !optional {
            return Some(self.expr(at, Kind::Select { of: Box::new(of), field: name, test: false }));
        }
        if !self.optionals {
            self.issues.push(Some(at), "unsupported syntax '.?'".into());
        }
        let field = self.expr(name_at, Kind::Literal(Literal::String(name)));
        Some(self.call(at, op::OPT_SELECT, vec![of, field]))
    }

    fn member_call(&mut self, open: usize, of: Expr, name: Arc<str>, args: Vec<Expr>) -> Expr {
        let Some(expand) = macros::find(self.macros, &name, Some(&of), args.len()) else {
            let target = Some(Box::new(of));
            return self.expr(open, Kind::Call(Call { function: name, target, args }));
        };
        let mut builder = Builder { positions: &mut self.positions, at: open };
        let expanded = expand(&mut builder, of, args);
        self.expanded(open, expanded)
    }

    fn expanded(&mut self, at: usize, expanded: Result<Expr, macros::Fault>) -> Expr {
        match expanded {
            Ok(expr) => expr,
            Err(fault) => {
                self.issues.push(self.positions.of(fault.id), fault.text);
                self.expr(at, Kind::Missing)
            }
        }
    }

    /// Parses a name after a point; most words of the language are names there.
    fn identifier(&mut self, optional: bool) -> Option<Arc<str>> {
        let t = self.token();
        match (t.token, t.text.as_str()) {
            (Token::Word, word @ ("true" | "false" | "null")) => {
                self.fail(format!("Syntax error: mismatched input '{word}' expecting IDENTIFIER"));
                None
            }
            (Token::Word, word) if word != "in" => {
                self.at += 1;
                Some(word.into())
            }
            (Token::Escaped, _) => {
                self.fail("unsupported syntax: '`'".into());
                self.at += 1;
                Some(t.text.trim_matches('`').into())
            }
            _ if optional => {
                self.mismatch::<()>("{IDENTIFIER, ESC_IDENTIFIER}");
                self.fail("unsupported ident kind".into());
                None
            }
            (Token::End, _) => {
                self.fail("Syntax error: no viable alternative at input '.'".into());
                None
            }
            (_, text) => {
                self.fail(format!("Syntax error: no viable alternative at input '.{text}'"));
                if text == "in" && self.next_is_end() {
                    self.at += 1;
                    self.mismatch::<()>(&format!("{{'[', '{{', '(', {OPERAND}"));
                }
                None
            }
        }
    }

    fn begins(t: &Lexeme) -> bool {
        match t.token {
            Token::End | Token::Escaped => false,
            Token::Sign => matches!(t.text.as_str(), "[" | "{" | "(" | "." | "-" | "!"),
            Token::Word => t.text != "in",
            _ => true,
        }
    }

    /// Complains about a token that begins no operand. One too many is passed over.
    fn operand(&mut self, brackets: &str) -> Option<()> {
        if Self::begins(self.token()) {
            return Some(());
        }
        let expected = match brackets.strip_suffix('?') {
            Some(brackets) => format!("{{{brackets}{}", OPERAND.replace("'!', ", "'!', '?', ")),
            None => format!("{{{brackets}{OPERAND}"),
        };
        if Self::begins(self.next()) {
            self.extraneous(&expected);
            return Some(());
        }
        let t = self.token();
        self.mismatch::<()>(&expected);
        let bracket = matches!(t.text.as_str(), ")" | "]" | "}" | "," | ":");
        let escaped = t.token == Token::Escaped;
        if t.token != Token::End && !bracket && !escaped && self.next_is_end() {
            self.at += 1;
            self.mismatch::<()>(&expected);
        }
        None
    }

    fn primary(&mut self, number: Option<usize>, brackets: &str) -> Option<Expr> {
        let before = self.at;
        self.operand(brackets)?;
        if self.at > before {
            // A token was passed over: what follows may have signs.
            return self.unary();
        }
        let t = self.token();
        let at = number.unwrap_or(t.at);
        match (t.token, t.text.as_str()) {
            (Token::Word, "true" | "false") => {
                self.at += 1;
                Some(self.expr(at, Kind::Literal(Literal::Bool(t.text == "true"))))
            }
            (Token::Word, "null") => {
                self.at += 1;
                Some(self.expr(at, Kind::Literal(Literal::Null)))
            }
            (Token::Word, _) => self.name(at, ""),
            (Token::Sign, ".") => {
                self.at += 1;
                match self.token().token {
                    Token::Word if self.token().text != "in" => self.name(self.token().at, "."),
                    Token::End => {
                        self.fail("Syntax error: no viable alternative at input '.'".into());
                        None
                    }
                    _ => {
                        let text = &self.token().text;
                        self.fail(format!("Syntax error: no viable alternative at input '.{text}'"));
                        None
                    }
                }
            }
            (Token::Sign, "(") => {
                self.at += 1;
                let inner = self.inside(")", Self::expression)?;
                self.close(")")?;
                Some(inner)
            }
            (Token::Sign, "[") => self.list(at),
            (Token::Sign, _) => self.map(at),
            (token, text) => {
                let value = literal::value(token, text, number.is_some());
                if let Err(text) = &value {
                    self.issues.push(Some(at), (*text).into());
                }
                self.at += 1;
                Some(self.expr(at, value.map_or(Kind::Missing, Kind::Literal)))
            }
        }
    }

    /// Passes over what may follow an item of a list or a map: whether another one follows.
    fn more(&mut self, closer: &'static str) -> Option<bool> {
        let expected = format!("{{'{closer}', ','}}");
        let next = self.next();
        if !self.is(closer)
            && !self.is(",")
            && next.token == Token::Sign
            && (next.text == closer || next.text == ",")
        {
            self.extraneous(&expected);
        }
        if self.take(",").is_some() {
            // A comma may stand before the end.
            if self.is(closer) {
                return Some(false);
            }
            if self.is(",") {
                return self.mismatch(&format!("'{closer}'"));
            }
            return Some(true);
        }
        if self.is(closer) { Some(false) } else { self.mismatch(&expected) }
    }

    fn optional_mark(&mut self) -> bool {
        let at = self.token().at;
        let mark = self.take("?").is_some();
        if mark && !self.optionals {
            self.issues.push(Some(at), "unsupported syntax '?'".into());
        }
        mark
    }

    fn list(&mut self, at: usize) -> Option<Expr> {
        self.at += 1;
        let mut items = Vec::new();
        self.take_only_comma("]");
        self.inside("]", |p| {
            while !p.is("]") {
                let optional = p.optional_mark();
                items.push((p.expression()?, optional));
                if !p.more("]")? {
                    break;
                }
            }
            Some(())
        })?;
        self.close("]")?;
        Some(self.expr(at, Kind::List(items)))
    }

    /// Passes over a comma that stands alone between brackets.
    fn take_only_comma(&mut self, closer: &str) {
        if self.is(",") && self.next().token == Token::Sign && self.next().text == closer {
            self.at += 1;
        }
    }

    fn map(&mut self, at: usize) -> Option<Expr> {
        self.at += 1;
        let mut entries = Vec::new();
        self.take_only_comma("}");
        self.inside("}", |p| {
            while !p.is("}") {
                let optional = p.optional_mark();
                let key = p.expression()?;
                if p.take(":").is_none() {
                    return p.mismatch("':'");
                }
                entries.push(Entry { key, value: p.expression()?, optional });
                if !p.more("}")? {
                    break;
                }
            }
            Some(())
        })?;
        self.close("}")?;
        Some(self.expr(at, Kind::Map(entries)))
    }

    /// Parses a name, a call of a function, or an object.
    fn name(&mut self, at: usize, dot: &str) -> Option<Expr> {
        let t = self.token();
        self.at += 1;
        let name = format!("{dot}{}", t.text);
        if let Some(object) = self.object(&name) {
            return object;
        }
        let reserved = RESERVED.contains(&t.text.as_str());
        if reserved {
            self.issues.push(Some(at), format!("reserved identifier: {}", t.text));
        }
        if let Some(open) = self.take("(") {
            let mut args = self.arguments()?;
            if name == "has" && args.len() == 1 {
                let arg = args.remove(0);
                let mut builder = Builder { positions: &mut self.positions, at: open };
                let expanded = macros::has(&mut builder, arg);
                return Some(self.expanded(open, expanded));
            }
            return Some(self.call(open, &name, args));
        }
        Some(self.expr(at, Kind::Name(name.as_str().into())))
    }

    /// Parses the fields of an object, if this name and those after points lead to a brace.
    fn object(&mut self, name: &str) -> Option<Option<Expr>> {
        let back = self.at;
        let mut whole = name.to_owned();
        while self.is(".") && self.next().token == Token::Word {
            whole = format!("{whole}.{}", self.next().text);
            self.at += 2;
        }
        match self.take("{") {
            Some(at) => Some(self.fields(at, &whole)),
            None => {
                self.at = back;
                None
            }
        }
    }

    fn fields(&mut self, at: usize, name: &str) -> Option<Expr> {
        let mut fields = Vec::new();
        self.take_only_comma("}");
        self.inside("}", |p| {
            while !p.is("}") {
                let optional = p.optional_mark();
                if !matches!(p.token().token, Token::Word | Token::Escaped) {
                    p.extraneous("{'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}");
                    return None;
                }
                let name = p.identifier(false)?;
                let colon = p.token().at;
                if p.take(":").is_none() {
                    return p.mismatch("':'");
                }
                let id = p.positions.add(colon);
                fields.push(Field { id, name, value: p.expression()?, optional });
                if !p.more("}")? {
                    break;
                }
            }
            Some(())
        })?;
        self.close("}")?;
        Some(self.expr(at, Kind::Object { name: name.into(), fields }))
    }

    /// Parses the arguments of a call up to its bracket, which is passed over.
    fn arguments(&mut self) -> Option<Vec<Expr>> {
        let mut out = Vec::new();
        if self.take(")").is_some() {
            return Some(out);
        }
        self.operand_or_close()?;
        if self.take(")").is_some() {
            return Some(out);
        }
        self.inside(")", |p| {
            loop {
                out.push(p.expression()?);
                if p.take(",").is_none() {
                    return Some(());
                }
            }
        })?;
        self.close(")")?;
        Some(out)
    }

    /// Complains about a token that neither begins an argument nor closes the call.
    fn operand_or_close(&mut self) -> Option<()> {
        if Self::begins(self.token()) {
            return Some(());
        }
        let expected = format!("{{'[', '{{', '(', ')', {OPERAND}");
        if Self::begins(self.next()) || self.next().token == Token::Sign && self.next().text == ")" {
            self.extraneous(&expected);
            return Some(());
        }
        self.mismatch(&expected)
    }
}
