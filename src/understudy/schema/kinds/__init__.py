"""The kinds of column: how cells of each become codes and come back."""
