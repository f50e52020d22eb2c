"""Two kinds of plots as SVG, without a library: bars in groups, and lines on logarithmic axes."""
import math

COLOURS = ["#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#9c6b4e", "#a463f2"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 320, 64, 16, 44, 44


def escaped(text):
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def text(x, y, what, anchor="middle", size=12):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escaped(what)}</text>'


def frame(title, names, body):
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
             'font-family="sans-serif" fill="#222">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
             text(LEFT, 18, title, "start", 14)]
    x = LEFT
    for i, name in enumerate(names):
        parts.append(f'<rect x="{x}" y="26" width="10" height="10" fill="{COLOURS[i % len(COLOURS)]}"/>')
        parts.append(text(x + 14, 35, name, "start", 11))
        x += 30 + 7 * len(name)
    return "\n".join(parts + body + ["</svg>"]) + "\n"


def level(value, low, high):
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (value - low) / (high - low or 1)


def rule(y, label):
    return [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>', text(LEFT - 6, y + 4, label, "end", 11)]


def bars(title, unit, groups, series):
    """`groups`: names along the axis; `series`: (name, values with the group's place)."""
    most = max(max(values) for _, values in series) or 1
    step = 10 ** math.floor(math.log10(most))
    step = next(s for s in (step / 5, step / 2, step, 2 * step) if most / s <= 6)
    top = math.ceil(most / step) * step
    body = []
    for i in range(round(top / step) + 1):
        body += rule(level(i * step, 0, top), f"{i * step:g} {unit}")
    room = (WIDTH - LEFT - RIGHT) / len(groups)
    wide = room * 0.8 / len(series)
    for g, name in enumerate(groups):
        body.append(text(LEFT + room * (g + 0.5), HEIGHT - BOTTOM + 18, name))
        for s, (_, values) in enumerate(series):
            x, y = LEFT + room * (g + 0.1) + wide * s, level(values[g], 0, top)
            body.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide - 2:.1f}" height="{HEIGHT - BOTTOM - y:.1f}" fill="{COLOURS[s]}"/>')
            body.append(text(x + wide / 2 - 1, y - 3, f"{values[g]:.3g}", size=10))
    return frame(title, [name for name, _ in series], body)


def lines(title, unit, along, points, series):
    """Both axes logarithmic, with a line of slope 1 for the eye."""
    values = [v for _, of in series for v in of if v > 0]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    left, right = math.log10(min(points)), math.log10(max(points))

    def across(n):
        return LEFT + 10 + (WIDTH - LEFT - RIGHT - 20) * (math.log10(n) - left) / (right - left or 1)

    body = []
    for power in range(low, high + 1):
        body += rule(level(power, low, high), f"{10 ** power:g} {unit}")
    for n in points:
        body.append(text(across(n), HEIGHT - BOTTOM + 16, f"{n:,}", size=11))
    body.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, along))
    span = min(high - low, right - left)
    body.append(f'<line x1="{across(10 ** (right - span)):.1f}" y1="{level(high - span, low, high):.1f}" x2="{across(10 ** right):.1f}" '
                f'y2="{level(high, low, high):.1f}" stroke="#999" stroke-dasharray="4 4"/>')
    for s, (_, of) in enumerate(series):
        at = [(across(n), level(math.log10(v), low, high)) for n, v in zip(points, of) if v > 0]
        body.append(f'<polyline fill="none" stroke="{COLOURS[s]}" stroke-width="2" points="' + " ".join(f"{x:.1f},{y:.1f}" for x, y in at) + '"/>')
        body += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{COLOURS[s]}"/>' for x, y in at]
    return frame(title, [name for name, _ in series], body)
