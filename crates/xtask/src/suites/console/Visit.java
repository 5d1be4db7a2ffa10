import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;

/** Visits the console by JDBC, with PORT, PASSWORD and STATEMENTS, a line each. */
public class Visit {
    public static void main(String[] arguments) throws SQLException {
        String where = "jdbc:postgresql://127.0.0.1:" + System.getenv("PORT") + "/backwater";
        try (Connection connection = DriverManager.getConnection(where, "dba", System.getenv("PASSWORD"));
                Statement statement = connection.createStatement()) {
            for (String text : System.getenv("STATEMENTS").split("\n")) {
                statement.execute(text);
            }
            try (ResultSet rules = statement.executeQuery("SHOW RULES")) {
                while (rules.next()) {
                    System.out.println(rules.getString("name") + " " + rules.getString("action") + " " + rules.getLong("began"));
                }
            }
            try (ResultSet users = connection.prepareStatement("SHOW USERS").executeQuery()) {
                while (users.next()) {
                    System.out.println(users.getString(1) + " " + users.getString(2));
                }
            }
            try {
                statement.execute("DROP RESOURCE POOL nowhere");
            } catch (SQLException refused) {
                System.out.println(refused.getSQLState());
            }
            connection.setAutoCommit(false);
            statement.execute("ALTER RESOURCE POOL rp1 WITH (max_active=3)");
            connection.commit();
            try (ResultSet pools = statement.executeQuery("SHOW POOLS")) {
                while (pools.next()) {
                    if (pools.getString("name").equals("rp1")) {
                        System.out.println(pools.getLong("max_active"));
                    }
                }
            }
        }
    }
}
