"""The table of faulty inputs: what is given, what the command answers, and what may lie on the disk
afterwards.
"""

from inputs import of_commands, of_data, of_models, of_places, of_recipes, of_results
from inputs.row import Row

# By what is faulty.
GROUPS: dict[str, list[Row]] = {
    "recipes": of_recipes.ROWS,
    "data": of_data.ROWS,
    "options": of_commands.ROWS,
    "models": of_models.ROWS,
    "places": of_places.ROWS,
    "results of earlier runs": of_results.ROWS,
}
ROWS = [row for rows in GROUPS.values() for row in rows]
