"""inline.py - calls of functions as the functions' own instructions: registers, labels and variables get new names, arguments
and results become registers."""
import re

from text import Instruction, Label, NotUnderstood

MOST = 50  # calls within calls


def place(name, operand):
    """The register of [parameter+offset] of the call or function NAME."""
    match = re.match(r"\[\s*([\w$.]+)\s*(?:\+\s*(\d+))?\s*\]$", operand)
    return match and (match.group(1), "%%call_%s_%s_%s" % (name, match.group(1), match.group(2) or 0))


class Inliner:
    def __init__(self, kernel, functions):
        self.kernel, self.functions, self.calls = kernel, functions, 0

    def moved(self, instruction, name, formal, actual):
        """ld.param and st.param of arguments and results, as movs."""
        if "param" not in instruction.mods:
            return None
        at = 1 if instruction.name == "ld" else 0
        base, register = place(name, instruction.ops[at])
        if base in formal:
            register = register.replace("_%s_" % base, "_%s_" % actual[formal.index(base)], 1)
        elif base in self.kernel.parameters:
            return None
        kind = instruction.mods[-1]
        self.kernel.registers[register] = kind
        ops = [instruction.ops[0], register] if instruction.name == "ld" else [register, instruction.ops[1]]
        return Instruction(instruction.guard, "mov", [kind], ops, instruction.line, instruction.text)

    def call(self, instruction, depth):
        """The statements of the function that is called."""
        match = re.match(r"(?:\(([^)]*)\)\s*,\s*)?([\w$.]+)\s*(?:,\s*\(([^)]*)\))?$", ", ".join(instruction.ops))
        function = match and self.functions.get(match.group(2))
        if not function or depth > MOST or instruction.guard:
            raise NotUnderstood("call " + instruction.text)
        self.calls += 1
        unique = "c%d" % self.calls
        names = {r: "%%%s_%s" % (unique, r.lstrip("%")) for r in function.registers}
        self.kernel.registers.update({names[r]: kind for r, kind in function.registers.items()})
        for variable in function.variables:
            names[variable.name] = variable.name if variable.space == "shared" else "%s_%s" % (unique, variable.name)
            if names[variable.name] not in [v.name for v in self.kernel.variables]:
                self.kernel.variables.append(variable._replace(name=names[variable.name]))
        labels = {s.name: "$%s_%s" % (unique, s.name.lstrip("$")) for s in function.statements if isinstance(s, Label)}
        words = dict(names, **labels)
        end = "$%s_end" % unique
        formal = function.results + list(function.parameters)
        actual = [w.strip() for part in match.group(1, 3) for w in (part or "").split(",") if w.strip()]
        scope = instruction.line, formal, actual
        renamed = lambda text: re.sub(r"[%$]?[\w$.]+", lambda m: words.get(m.group(0), m.group(0)), text)
        for label, targets in function.tables.items():
            self.kernel.tables[labels.get(label, label)] = [labels[t] for t in targets]
        body = []
        for statement in function.statements:
            if isinstance(statement, Label):
                body.append(Label(labels[statement.name]))
                continue
            guard = statement.guard and (names[statement.guard[0]], statement.guard[1])
            statement = statement._replace(guard=guard, ops=[renamed(op) for op in statement.ops])
            if statement.name == "ret":
                statement = statement._replace(name="bra", mods=[], ops=[end])
            body.append(statement)
        return self.expand(body, depth + 1, scope) + [Label(end)]

    def expand(self, statements, depth=0, scope=(0, [], [])):
        result = []
        for statement in statements:
            if isinstance(statement, Instruction) and statement.name == "call":
                result += self.call(statement, depth)
                continue
            if isinstance(statement, Instruction) and statement.name in ("ld", "st"):
                statement = self.moved(statement, "of", scope[1], scope[2]) or statement
            result.append(statement)
        return result


def inline(kernel, functions):
    if functions:
        kernel.statements = Inliner(kernel, functions).expand(kernel.statements)
